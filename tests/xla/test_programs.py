"""Compiled functions in processes of their own: SavedModels, late imports, TensorFlow's names."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import children, compare, cudnn_ops, tolerances
from helpers.programs import xla_child
from helpers.reference.stack import Network

_LOADS = """
import sys
import numpy as np, tensorflow as tf, tf_blockrnn
model = tf.saved_model.load(sys.argv[1])
x = tf.constant(np.load(sys.argv[2]))
found = {**model(x), **model.train(x)}
np.savez(sys.argv[3], **{k: v.numpy() for k, v in found.items()})
"""


class _Model(tf.Module):
    """A fused layer and a stack, compiled, with a training step."""

    def __init__(self, tfb, units, call):
        super().__init__()
        rng = np.random.default_rng(4)
        shapes = {"w_x": (units, 4 * units), "w_h": (units, 4 * units), "b": (4 * units,)}
        self.weights = {
            k: tf.Variable(rng.normal(size=v).astype(np.float32) * 0.5) for k, v in shapes.items()
        }
        self.params = tf.Variable(rng.normal(size=call.net.params_size()).astype(np.float32) * 0.5)
        self._tfb, self._call = tfb, call

    def _forward(self, x):
        net = self._call.net
        outputs, _ = self._tfb.lstm(x, **self.weights, time_major=True)
        state = tf.zeros([net.layer_directions, tf.shape(x)[1], net.units])
        return self._tfb.raw_ops.CudnnRNNV3(
            input=outputs,
            input_h=state,
            input_c=state,
            params=self.params,
            sequence_lengths=tf.constant(self._call.lengths),
            **self._call.attrs(),
        )

    def __call__(self, x):
        outputs = self._forward(x)
        return {"output": outputs.output, "reserve_space": outputs.reserve_space}

    def train(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self._forward(x).output ** 2)
        gradients = tape.gradient(loss, [self.weights["w_h"], self.params])
        self.params.assign_sub(0.01 * gradients[1])
        return {"loss": loss, "w_h": gradients[0], "params": gradients[1]}


def test_a_saved_model_runs_in_a_new_process(tfb, tmp_path):
    """Which imports the package alone; the program is compiled there."""
    units, call = 5, cudnn_ops.Call(Network("gru", 1, 2, 5, 5), 4, 3, (1, 2, 1))
    x = np.random.default_rng(1).normal(size=(4, 3, units)).astype(np.float32)
    model = _Model(tfb, units, call)
    want = {k: v.numpy() for k, v in model(tf.constant(x)).items()}
    plain = want.pop("reserve_space")
    signature = [tf.TensorSpec([4, None, units])]
    model.__call__ = tf.function(model.__call__, jit_compile=True, input_signature=signature)
    train = model.train
    model.train = tf.function(train, jit_compile=True, input_signature=signature)
    tf.saved_model.save(model, str(tmp_path / "model"))
    want |= {k: v.numpy() for k, v in train(tf.constant(x)).items()}
    np.save(tmp_path / "x.npy", x)
    program = tmp_path / "loads.py"
    program.write_text(_LOADS)
    paths = [str(tmp_path / name) for name in ("model", "x.npy", "found.npz")]
    children.assert_ok(children.run_python([str(program), *paths], fresh=True), "the loaded model")
    found = dict(np.load(paths[-1]))
    # A program's is that of rows that have all steps: XLA has compiled what was loaded.
    assert found.pop("reserve_space").size > plain.size
    assert found.keys() == want.keys()
    for name in ("output", "w_h", "params"):
        assert compare.bits(found[name]) == compare.bits(want[name]), name
    bound = tolerances.bound("float", found["output"].size)
    compare.assert_close(found["loss"], want["loss"], bound, "the loss")


def _run_child(*arguments, **extra):
    program = str(children.PROGRAMS / "xla_child.py")
    result = children.run_python([program, *arguments], **extra)
    out = children.assert_ok(result, f"{arguments} {extra}")
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.parametrize("order", ["early", "late"])
def test_an_import_before_and_after_xla_compiles_first(order):
    """XLA makes its lowerings known to TensorFlow once; those of a later import come beside."""
    assert _run_child(order) == xla_child.count()


def test_tensorflows_names_are_left_alone_where_they_are_to_be():
    found = _run_child("names", TF_BLOCKRNN_EXTEND_TF="0")
    assert found["ours"] == "ok"
    for name in cudnn_ops.FORWARD.values():
        assert found[name].startswith("InvalidArgumentError"), found
        assert f"No registered '{name}' OpKernel for XLA_CPU_JIT" in found[name], found
    found = _run_child("names", TF_BLOCKRNN_EXTEND_TF="1")
    assert set(found.values()) == {"ok"}, found
