"""The cells in a saved model, and the package imported again."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, children, compare

pytestmark = pytest.mark.types


class _Model(tf.Module):
    """A trainable step of each family, and its gradient, as a SavedModel holds them."""

    def __init__(self, raw_ops):
        super().__init__()
        self._raw_ops = raw_ops
        gru = block_cells.random_inputs(block_cells.GRU, (4, 6, 5), np.float32)
        lstm = block_cells.random_inputs(block_cells.LSTM, (4, 6, 5), np.float32)
        states = ("x", "h_prev", "cs_prev")
        self.gru = {k: tf.Variable(v) for k, v in gru.items() if k not in states}
        self.lstm = {k: tf.Variable(v) for k, v in lstm.items() if k not in states}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 6], tf.float32),
            tf.TensorSpec([None, 5], tf.float32),
        ]
    )
    def step(self, x, h):
        with tf.GradientTape() as tape:
            gru = self._raw_ops.GRUBlockCell(x=x, h_prev=h, **self.gru)
            lstm = self._raw_ops.LSTMBlockCell(
                x=x,
                cs_prev=h,
                h_prev=gru.h,
                **self.lstm,
                cell_clip=0.5,
                forget_bias=0.25,
                use_peephole=True,
            )
            total = tf.reduce_sum(lstm.h)
        gradients = tape.gradient(total, [self.gru["w_ru"], self.lstm["w"], self.lstm["wco"]])
        return [gru.h, lstm.cs, lstm.h, *gradients]


_LOAD = """
import sys
import numpy as np
import tensorflow as tf
{imported}
model = tf.saved_model.load(sys.argv[1])
data = np.load(sys.argv[1] + "/data.npz")
outputs = model.step(tf.constant(data["x"]), tf.constant(data["h"]))
np.savez(sys.argv[1] + "/outputs.npz", *[o.numpy() for o in outputs])
print("loaded")
"""


def test_saved_model_round_trip(tfb, tmp_path):
    """Another process loads what this one saved, and gets the same bits."""
    model = _Model(tfb.raw_ops)
    folder = str(tmp_path / "model")
    rng = np.random.default_rng(3)
    x, h = (rng.normal(size=(9, n)).astype(np.float32) for n in (6, 5))
    want = [v.numpy() for v in model.step(tf.constant(x), tf.constant(h))]
    tf.saved_model.save(model, folder)
    np.savez(folder + "/data.npz", x=x, h=h)
    program = tmp_path / "load.py"
    program.write_text(_LOAD.format(imported="import tf_blockrnn"))
    children.assert_ok(children.run_python([str(program), folder]), "loading")
    got = list(np.load(folder + "/outputs.npz").values())
    assert [compare.bits(v) for v in got] == [compare.bits(v) for v in want]
    # Without the package it must fail with the op's name, so that a reader knows what to import.
    program.write_text(_LOAD.format(imported=""))
    result = children.run_python([str(program), folder])
    assert result.returncode != 0 and "loaded" not in result.stdout
    assert "BlockRNN>GRUBlockCell" in result.stderr


_IMPORTS = """
import sys
import numpy as np
import tensorflow as tf
from helpers import block_cells

def taped(cell):
    inputs = block_cells.random_inputs(block_cells.GRU, (2, 3, 4), np.float32)
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        h = cell(**tensors).h
    return lambda: [value.numpy().tobytes() for value in tape.gradient(h, tensors).values()]

def check(package):
    # Gradients of an op of each module, ours and TensorFlow's, and second derivatives.
    for cell in (package.raw_ops.GRUBlockCell, tf.raw_ops.GRUBlockCell):
        print(*[np.frombuffer(each, np.float32).sum() for each in taped(cell)()])
    x, w, b = tf.ones([2, 3, 4]), tf.fill([7, 12], 0.1), tf.zeros([12])
    twice = [
        lambda w: package.lstm_block_cell(x[0], w, b, state=(x[0, :, :3], x[0, :, :3])).h,
        lambda w: package.lstm(x, w[:4], w[4:], b)[0],
        lambda w: package.gru(x, w[:4, :9], w[4:, :9], b[:9])[0],
        lambda w: package.simple_rnn(x, w[:4, :3], w[4:, :3], b[:3])[0],
    ]
    once = [
        lambda w: package.block_lstm(x, w, b).h,
        lambda w: package.block_gru(x, w[:, :6], w[:, 6:9], b[:6], b[:3]).h,
    ]
    for function in (*once, *twice):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(w)
            with tf.GradientTape() as inner:
                inner.watch(w)
                total = tf.reduce_sum(function(w))
            norm = tf.reduce_sum(inner.gradient(total, w) ** 2)
        print(float(norm))
        if function in twice:
            print(float(tf.reduce_sum(tape.gradient(norm, w))))
"""
_IMPORTED_AGAIN = """
import tf_blockrnn as old
ours, tensorflows = old.raw_ops.GRUBlockCell, tf.raw_ops.GRUBlockCell
before = [taped(ours), taped(tensorflows)]
want = [taped(ours)(), taped(tensorflows)()]
for name in [name for name in sys.modules if name.partition(".")[0] == "tf_blockrnn"]:
    del sys.modules[name]
import tf_blockrnn
assert tf_blockrnn is not old
assert [gradient() for gradient in before] == want
assert [taped(ours)(), taped(tensorflows)()] == want
check(tf_blockrnn)
"""
_IMPORT_BREAKS_OFF = """
register = tf.RegisterGradient
def fail(op):
    if op == "BlockRNN>LSTMBlockCellGrad":  # the second one of its module
        raise OSError("no more")
    return register(op)
tf.RegisterGradient = fail
for _ in range(2):
    try:
        import tf_blockrnn
    except OSError as error:
        assert str(error) == "no more"
    else:
        raise AssertionError("imported")
tf.RegisterGradient = register
import tf_blockrnn
check(tf_blockrnn)
"""


def test_the_package_can_be_imported_again(tfb):
    """Dropped from sys.modules, or after an import that failed: the same gradients."""
    del tfb
    want, *got = (
        children.assert_ok(children.run_code(_IMPORTS + program), "importing")
        for program in (
            "import tf_blockrnn\ncheck(tf_blockrnn)",
            _IMPORTED_AGAIN,
            _IMPORT_BREAKS_OFF,
        )
    )
    assert len(want.split()) == 22 and "nan" not in want
    assert got == [want, want]
