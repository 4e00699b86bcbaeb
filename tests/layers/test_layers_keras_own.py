"""Keras' own tests of its recurrent layers, which its wheel carries, on the fused ops.

Once with the layers of this package in the place of Keras', and once with `enable_keras`.
"""

from __future__ import annotations

import ast
import json
import pathlib

import keras
import pytest
from helpers import children

pytestmark = pytest.mark.types

FILES = (
    *("lstm_test.py", "gru_test.py", "simple_rnn_test.py", "bidirectional_test.py"),
    *("rnn_test.py", "stacked_rnn_cells_test.py"),
)

# What Keras' tests skip by themselves here, and why. Nothing else may be skipped, nothing may fail.
SKIPPED = {
    "test_torch_cudnn_bidirectional_gru_dispatch_fires": "is of the torch backend",
    "test_torch_cudnn_dispatch_fires": "is of the torch backend",
}


def names_in(file: pathlib.Path) -> set[str]:
    """The names of the tests that a file defines, read without running it."""
    defined = (n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef))
    return {node.name for node in defined if node.name.startswith("test_")}


@pytest.fixture(scope="module", params=["layers", "enable_keras"])
def run(request, tfb):
    from keras.src.layers import rnn

    folder = pathlib.Path(rnn.__file__).parent
    files = [folder / name for name in FILES]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        pytest.skip(f"not run: the wheel of Keras {keras.__version__} does not carry {missing}")
    child = children.PROGRAMS / "keras_own_child.py"
    result = children.run_python([str(child), request.param, *map(str, files)], timeout=300)
    out = children.assert_ok(result, "Keras' own tests")
    return request.param, files, json.loads(out.strip().splitlines()[-1])


def test_all_pass(run):
    _, files, report = run
    outcomes = {tuple(name.split("::")): outcome for name, outcome in report["outcomes"].items()}
    assert set(outcomes.values()) <= {"passed", "skipped"}
    assert {name[-1] for name, outcome in outcomes.items() if outcome == "skipped"} <= set(SKIPPED)
    # Each test that the files define ran; parameters add a number to the name.
    for file in files:
        for test in names_in(file):
            ran = [name for name in outcomes if name[0] == file.name and name[-1].startswith(test)]
            assert ran, f"{file.name}: {test} did not run"


def test_they_ran_on_the_ops(run):
    how, _, report = run
    loops = report["fused"].pop("RNN", 0)  # over Keras' own cells
    assert set(report["fused"]) == {"GRU", "LSTM", "SimpleRNN"}
    assert min(report["fused"].values()) >= 10 and bool(loops) == (how == "enable_keras")
