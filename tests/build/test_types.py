"""A user's program type-checks against the package: signatures, named tuples, lazy names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.children import ROOT

pytestmark = pytest.mark.packages

# tensorflow and keras have no types of their own, so what they give is Any.
_PROGRAM = """
import tensorflow as tf
import tf_blockrnn
from tf_blockrnn import LSTMState, layers, raw_ops, weights

x, w, b = tf.ones([2, 5, 3]), tf.ones([3, 16]), tf.zeros([16])
outputs, state = tf_blockrnn.lstm(x, w, w, b, initial_state=LSTMState(h=x, cs=x), cell_clip=3.0)
reveal_type(state)
reveal_type(tf_blockrnn.lstm_block_cell(x, w, b, state=(state.h, state.cs)))
reveal_type(tf_blockrnn.block_gru(x, w, w, b, b, seq_len_max=2))
tf_blockrnn.gru(x, w, w, b, reset_after=False)
tf_blockrnn.simple_rnn(x, w, w, b, activation="relu")
layer = layers.LSTM(4)
weights.from_npz("weights.npz")
"""
_WRONG = {
    "tf_blockrnn.lstm(1, 2, 3, 4, forget_biass=1.0)": 'Unexpected keyword argument "forget_biass"',
    "tf_blockrnn.lstm(x, w, w, b, go_backwards='no')": "go_backwards",
    "tf_blockrnn.lstm_block_cell(x, w, b)": 'Missing named argument "state"',
    "state.c": '"LSTMState" has no attribute "c"',
    "tf_blockrnn.block_gru(x, w, w, b, b).cs": '"GRUOutputs" has no attribute "cs"',
    "layers.GRUUU": "GRUUU",
    "tf_blockrnn.no_such_name": "no_such_name",
}


def test_a_users_program_type_checks(tmp_path):
    program = tmp_path / "program.py"
    lines = (_PROGRAM + "\n".join(_WRONG)).splitlines()
    program.write_text("\n".join(lines))
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent"]
        + ["--no-incremental", "--cache-dir", str(tmp_path / "cache"), str(program)],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = result.stdout.splitlines()
    assert found, result.stderr
    revealed = [line.split('"')[1] for line in found if "Revealed type" in line]
    for kind, text in zip(("LSTMState", "LSTMOutputs", "GRUOutputs"), revealed, strict=True):
        assert f"tf_blockrnn._types.{kind}" in text
    errors = [line for line in found if ": error:" in line]
    first = len(lines) - len(_WRONG) + 1
    for number, (code, message) in enumerate(_WRONG.items(), first):
        mine = [line for line in errors if line.startswith(f"{program}:{number}:")]
        assert any(message in line for line in mine), (code, found)
    assert all(int(line.split(":")[1]) >= first for line in errors), found
