"""Public reports of crashes in TensorFlow's block cells: none of them crashes ours.

Each is a call as it was published, reduced to shapes. All run in one child process, each
in three modes: eager, in a tf.function with the shapes known, and with them unknown.
"""

from __future__ import annotations

import json

import pytest
from helpers import block_cells, children

_LSTM_ARGUMENTS = list(block_cells.LSTM.inputs)
_GRAD_ARGUMENTS = list(block_cells.LSTM_GRAD.inputs)

# name: (op, dtype, attrs, shape of every argument)
REPRODUCERS = {
    "CVE-2022-29200": (
        "LSTMBlockCell",
        "float",
        {"forget_bias": 112.66590343649887, "cell_clip": 67.12389445926587},
        dict(
            x=[28, 29],
            cs_prev=[28, 17],
            h_prev=[28, 17],
            w=[46, 68],
            wci=[],
            wcf=[17],
            wco=[28, 17],
            b=[68],
        ),
    ),
    "CVE-2022-29200, all of shape [1]": (
        "LSTMBlockCell",
        "float",
        {},
        {name: [1] for name in _LSTM_ARGUMENTS},
    ),
    "CVE-2023-25658": (
        "GRUBlockCellGrad",
        "float",
        {},
        dict(
            x=[2, 2],
            h_prev=[2, 1],
            w_ru=[3, 2],
            w_c=[3, 1],
            b_ru=[2],
            b_c=[],
            r=[2, 1],
            u=[2, 1],
            c=[2, 1],
            d_h=[2, 1],
        ),
    ),
    "tensorflow#58261": (
        "GRUBlockCell",
        "float",
        {},
        dict(
            x=[1, 0, 1], h_prev=[1, 1, 1], w_ru=[1, 2, 1, 1, 1, 1], w_c=[1, 1, 1], b_ru=[2], b_c=[1]
        ),
    ),
    # No units at all, which is legal here; the peepholes are not, once they are used.
    "tensorflow#58270": (
        "LSTMBlockCell",
        "half",
        {"forget_bias": 112.66590343649887, "cell_clip": 67.12389445926587, "use_peephole": True},
        dict(
            x=[2, 16], cs_prev=[2, 0], h_prev=[2, 0], w=[16, 0], wci=[5], wcf=[16], wco=[13], b=[0]
        ),
    ),
    "tensorflow#66763": (
        "LSTMBlockCellGrad",
        "float",
        {"use_peephole": False},
        {name: [17] if name == "x" else [28, 29] for name in _GRAD_ARGUMENTS},
    ),
    "tensorflow#112746": (
        "LSTMBlockCellGrad",
        "float",
        {"use_peephole": True},
        {**{k: list(v) for k, v in block_cells.LSTM_GRAD.shapes((2, 4, 5)).items()}, "x": [0]},
    ),
    "tensorflow#113069": (
        "LSTMBlockCell",
        "half",
        {},
        dict(x=[2], cs_prev=[1, 2], h_prev=[1, 2], w=[4, 2], wci=[2], wcf=[2], wco=[2], b=[4]),
    ),
    # The whole-sequence ops' reports, carried over to one step.
    "tensorflow#104847": (
        "LSTMBlockCellGrad",
        "float",
        {"use_peephole": False},
        {name: [1] if name in ("wci", "wcf", "wco", "b") else [1, 1] for name in _GRAD_ARGUMENTS},
    ),
    "CVE-2022-35964": (
        "LSTMBlockCellGrad",
        "float",
        {"use_peephole": False},
        {name: [1, 1, 1] for name in _GRAD_ARGUMENTS},
    ),
}

_CHILD = """
import json, sys
import tensorflow as tf
import tf_blockrnn
outcome = {}
for name, (op, dtype, attrs, shapes) in json.load(sys.stdin).items():
    function = getattr(tf_blockrnn.raw_ops, op)
    tensors = {k: tf.cast(tf.fill(v, 0.837607), dtype) for k, v in shapes.items()}
    run = lambda t: function(**t, **attrs)
    unknown = {k: tf.TensorSpec(None, t.dtype) for k, t in tensors.items()}
    modes = {
        "eager": run,
        "static": tf.function(run),
        "unknown": tf.function(run, input_signature=[unknown]),
    }
    for mode, call in modes.items():
        print(name, mode, file=sys.stderr, flush=True)
        try:
            call(tensors)
            outcome[name + " " + mode] = ["accepted", ""]
        except Exception as error:
            outcome[name + " " + mode] = [type(error).__name__, str(error)]
print(json.dumps(outcome))
"""


@pytest.fixture(scope="module")
def outcomes(tfb, tmp_path_factory):
    del tfb
    program = tmp_path_factory.mktemp("reproducers") / "child.py"
    calls = json.dumps(REPRODUCERS)
    program.write_text(_CHILD.replace("json.load(sys.stdin)", f"json.loads({calls!r})"))
    result = children.run_python([str(program)])
    last = [line for line in result.stderr.splitlines() if line.strip()][-1:]
    out = children.assert_ok(result, f"the child (last call begun: {last})")
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.parametrize("mode", ["eager", "static", "unknown"])
@pytest.mark.parametrize("name", REPRODUCERS)
def test_reproducer_is_refused(outcomes, name, mode):
    op, _, attrs, shapes = REPRODUCERS[name]
    assert not block_cells.is_legal(block_cells.OPS[op], shapes, attrs), "not a malformed call"
    kind, message = outcomes[f"{name} {mode}"]
    # A graph that cannot be built is a ValueError in Python.
    assert kind == ("ValueError" if mode == "static" else "InvalidArgumentError"), message
    assert op in message and " must " in message and " got " in message, message
