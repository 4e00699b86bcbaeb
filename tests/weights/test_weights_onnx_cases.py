"""Weights from ONNX nodes, against ONNX's own test cases."""

from __future__ import annotations

import importlib
from unittest import mock

import numpy as np
import pytest
from helpers import tolerances
from helpers.compare import assert_close
from helpers.session_oracle import direction
from onnx import helper
from onnx.backend.test.case import node as node_cases

from tf_blockrnn import weights

OP_TYPES = ("GRU", "LSTM", "RNN")


def collect_cases() -> dict:
    """ONNX's cases of the three ops; making those of all ops takes seconds."""

    def import_ours(package) -> None:
        for name in ("gru", "lstm", "rnn"):
            importlib.import_module(f"{package.__name__}.{name}")

    with mock.patch.object(node_cases, "import_recursive", import_ours):
        cases = node_cases.collect_testcases(None)
    return {case.name: case for case in cases if case.model.graph.node[0].op_type in OP_TYPES}


CASES = collect_cases()


def test_there_are_cases_of_every_cell():
    """Those of onnx 1.22, at least."""
    for cell in ("gru", "lstm", "simple_rnn"):
        names = {f"test_{cell}_{end}" for end in ("batchwise", "defaults", "with_initial_bias")}
        assert names <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_case_of_onnx(name):
    """ONNX's own inputs and outputs, by our ops with the weights that we read."""
    case = CASES[name]
    node = case.model.graph.node[0]
    ((inputs, wants),) = case.data_sets
    values = dict(zip([i for i in node.input if i], inputs, strict=True))
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    ways = attributes.get("direction", b"forward").decode()
    described = weights.from_onnx(node, values, reverse=True)

    batch_first = attributes.get("layout", 0) == 1
    places = dict(enumerate(node.input))
    steps = {"time_major": not batch_first, "lengths": values.get(places.get(4))}
    states = [values[places[n]] for n in (5, 6) if places.get(n) in values]
    states = [state.swapaxes(0, 1) if batch_first else state for state in states]
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[ways]
    results, pair = [], described.cell == "lstm"
    for n, way in enumerate(backwards):
        state = tuple(each[n] for each in states) or None
        state = state if pair or state is None else state[0]
        one = list(described.layers[0])[n]
        y, last = direction(described, one, values["X"], state, **steps, go_backwards=way)
        results.append((y, *last) if pair else (y, last))
    outputs, *lasts = (np.stack(parts) for parts in zip(*results, strict=True))
    y = outputs.transpose(1, 2, 0, 3) if batch_first else outputs.swapaxes(0, 1)
    got = [y, *(last.swapaxes(0, 1) if batch_first else last for last in lasts)]

    # The cases are computed in float32, by NumPy.
    length = values["X"].shape[1 if batch_first else 0]
    terms = length * (described.input_size + described.layers[0].forward.units)
    for output, value in zip(node.output, got, strict=False):
        if output:
            want = dict(zip([o for o in node.output if o], wants, strict=True))[output]
            assert value.shape == want.shape, output
            assert_close(value, want, tolerances.parity_bound("float", terms), output)
