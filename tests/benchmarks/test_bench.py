"""The bench itself: that it measures what it says and refuses wrong peers."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
from helpers.children import ROOT, assert_ok, run_python

from bench import calls, data, op_cases, sequences, shapes, timing
from bench import run as command
from bench.peers import PEERS, base, tensorflow_base, worker

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def quick_cells(tmp_path_factory) -> tuple[pathlib.Path, str]:
    """The folder and the output of one quick run of the cells bench, in a process of its own."""
    folder = tmp_path_factory.mktemp("bench")
    # Of its own, because the bench sets the number of threads, which a started TensorFlow refuses.
    arguments = ["-m", "bench", "cells", "--quick", "--out", str(folder)]
    return folder, assert_ok(run_python(arguments, timeout=120, cwd=ROOT), "bench")


def test_quick_run_writes_json(quick_cells):
    result = json.loads((quick_cells[0] / "cells.json").read_text())
    rows = {(row["op"], tuple(row["shape"])): row for row in result["rows"]}
    assert set(rows) == {(op, s) for op in op_cases.OPS for s in shapes.CELL_SHAPES_QUICK}
    for row in rows.values():
        for who in ("ours", "tf"):
            assert 0 < row[who]["min_ms"] <= row[who]["median_ms"]
            assert row[who]["p25_ms"] <= row[who]["median_ms"] <= row[who]["p75_ms"]
        assert row["ratio"] == row["tf"]["median_ms"] / row["ours"]["median_ms"]
    assert set(result["summary"]) == set(op_cases.OPS)
    assert result["machine"]["cpu"] and result["machine"]["versions"]["python"]
    assert not result["null"]


def test_quick_run_draws_and_prints(quick_cells):
    folder, text = quick_cells
    assert (folder / "cells.png").read_bytes().startswith(PNG)
    for op in op_cases.OPS:
        assert f"{op}: mean ratio" in text
    assert str(folder / "cells.json") in text


def test_alternates_and_deals_the_time_out():
    order = []

    def contender(name: str, seconds: float) -> timing.Runner:
        def run(calls: int, warm: int) -> list[float]:
            order.append((name, calls, warm))
            return [seconds] * calls

        return run

    plan = timing.Plan(rounds=4, seconds=0.4)
    runners = {"quick": contender("quick", 0.001), "slow": contender("slow", 1.0)}
    samples = timing.alternate(runners, plan)
    # 0.1 s a turn: 100 calls of 1 ms. A call of 1 s has three turns of one, without a warm one.
    assert [len(turn) for turn in samples["quick"]] == [100] * 4
    assert [len(turn) for turn in samples["slow"]] == [1] * 3
    turns = [entry for entry in order if entry[1:] in ((100, 5), (1, 0))]
    assert [name for name, *_ in turns] == [
        "quick", "slow", "slow", "quick", "quick", "slow", "quick",
    ]  # fmt: skip


def test_summary_is_of_all_calls():
    out = timing.summary([[0.001, 0.003], [0.002, 0.1]], per=1)
    assert out["median_ms"] == pytest.approx(2.5)
    assert out["min_ms"] == pytest.approx(1.0)
    assert out["calls"] == 4
    assert timing.summary([[0.008]], per=4)["median_ms"] == pytest.approx(2.0)


def test_flops_count_the_products():
    case = shapes.Case("lstm", "infer", batch=2, steps=3, inputs=5, units=7)
    assert case.flops() == 2 * 3 * 2 * (4 * 7) * (5 + 7)
    assert shapes.Case("gru", "train", 2, 3, 5, 7).flops() == 3 * 2 * 3 * 2 * (3 * 7) * (5 + 7)


def test_flops_of_a_stack_count_what_its_rows_have():
    stack = shapes.Case(
        "rnn", "infer", 2, 4, inputs=5, units=7, layers=2, directions=2, lengths="spread"
    )
    assert stack.row_lengths() == [1, 3]
    assert stack.flops() == 2 * (1 + 3) * 2 * 7 * ((5 + 7) + (14 + 7))
    half = dataclasses.replace(stack, lengths="half")
    assert half.row_lengths() == [2, 2] and half.flops() == stack.flops()
    assert dataclasses.replace(stack, lengths="full").flops() == 2 * stack.flops()


def test_who_runs_what():
    def who(*case: object, **more: object) -> set[str]:
        case = shapes.Case(*case, 2, 3, 5, 7, **more)
        return {name for name in PEERS if PEERS[name].default and PEERS[name].does(case)}

    assert "ours" in who("lstm", "train") and "ours_cudnn" not in who("lstm", "train")
    stacks = {"layers": 2, "directions": 2}
    assert who("rnn", "train", **stacks) == {"ours_cudnn", "torch"}
    assert who("gru", "infer", **stacks) == {"ours_cudnn", "torch", "onnxruntime"}
    assert who("lstm", "infer", dtype="bfloat16") == {"ours", "ours_v4", "torch"}


def _layer_case(variant: str, cell: str = "lstm", kind: str = "train") -> shapes.Case:
    fields, kinds = shapes.LAYER_VARIANTS[variant]
    assert kind in kinds
    return shapes.Case(cell, kind, 3, 4, 5, 6, as_layer=True, **fields)


def test_who_runs_what_as_a_layer():
    def who(variant: str) -> set[str]:
        case = _layer_case(variant)
        assert case.variant == variant
        return {name for name in PEERS if PEERS[name].default and PEERS[name].does(case)}

    for variant in ("plain", "masked"):
        assert who(variant) == {"ours_layer", "keras", "keras_xla", "torch"}
    assert who("recurrent_dropout") == {"ours_layer", "keras", "keras_xla"}
    assert not PEERS["ours_layer"].does(shapes.Case("lstm", "train", 3, 4, 5, 6))


def test_a_masked_batch_has_rows_of_all_lengths_in_random_order():
    case = shapes.Case("gru", "train", 16, 32, 3, 2, lengths="random", as_layer=True)
    lengths = case.row_lengths()
    spread = dataclasses.replace(case, lengths="spread").row_lengths()
    assert sorted(lengths) == spread and lengths != spread
    assert sum(lengths) / len(lengths) == pytest.approx(case.steps / 2)
    assert case.row_lengths() == lengths  # every peer has the same
    assert case.valid().sum(axis=0).tolist() == lengths and case.valid()[0].all()
    cotangent = data.make(case).cotangent
    assert (cotangent[~case.valid()] == 0).all() and (cotangent[case.valid()] != 0).all()


@pytest.fixture
def servers(monkeypatch) -> dict[str, worker.Server]:
    """The peers of the bench of layers in this process, which has its threads already."""
    import tensorflow as tf
    import torch

    monkeypatch.setattr(tensorflow_base, "start", lambda threads: tf)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda threads: None)
    return {name: worker.Server(name, 1) for name in ("ours_layer", "keras", "torch")}


@pytest.mark.parametrize(
    ("cell", "variant"), [("lstm", "masked"), ("gru", "masked"), ("gru", "recurrent_dropout")]
)
def test_the_layers_of_all_peers_compute_the_same(servers, cell, variant):
    case = _layer_case(variant, cell)
    request = {"do": "prepare", "case": dataclasses.asdict(case)}
    checks = {
        name: server.answer(dict(request))["check"]
        for name, server in servers.items()
        if PEERS[name].does(case)
    }
    assert len(checks) == (2 if variant == "recurrent_dropout" else 3)
    assert sequences.disagreement(checks) == {}
    assert all(check["x_grad_norm"] > 0 for check in checks.values())


def test_dropout_is_fixed_for_the_check_and_acts(servers):
    server, case = servers["ours_layer"], _layer_case("recurrent_dropout")
    request = {"do": "prepare", "case": dataclasses.asdict(case)}
    check = server.answer(dict(request))["check"]
    prepared = server._prepared
    # What is timed draws anew at each call, what is checked does not.
    assert prepared.call()[0].numpy().tolist() != prepared.call()[0].numpy().tolist()
    assert prepared.outcome().h.tolist() == prepared.outcome().h.tolist()
    plain = server.answer(dict(request, case=dataclasses.asdict(_layer_case("plain"))))["check"]
    assert sequences.disagreement({"a": check, "b": plain})


def test_a_layer_that_does_not_run_on_the_op_is_no_contender_of_ours(servers, monkeypatch):
    from tf_blockrnn.layers import LSTM

    monkeypatch.setattr(LSTM, "why_not_fused", "a reason")
    request = {"do": "prepare", "case": dataclasses.asdict(_layer_case("plain"))}
    with pytest.raises(RuntimeError, match="does not run on the op: a reason"):
        servers["ours_layer"].answer(request)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_cost_of_a_call_is_what_the_layer_takes_above_the_op(servers, cell):
    case = dataclasses.asdict(_layer_case("plain", cell, "infer"))
    request = {"do": "call_cost", "case": case, "plan": {"rounds": 1, "seconds": 0.01}}
    cost = servers["ours_layer"].answer(dict(request))
    for mode in ("function", "eager"):
        above = cost[f"{mode}_layer_us"] - cost[f"{mode}_op_us"]
        assert cost[f"{mode}_above_us"] == pytest.approx(above)
        assert cost[f"{mode}_layer_us"] > 0
    with pytest.raises(base.Absent):
        servers["keras"].answer(dict(request))


def test_a_peer_that_computes_something_else_is_found():
    right = {"h_norm": 10.0, "loss": 2.0, "x_grad_norm": 5.0}
    checks = {"a": right, "b": dict(right, loss=2.0001), "c": dict(right, x_grad_norm=4.0)}
    assert set(sequences.disagreement(checks)) == {"c"}
    not_a_number = dict(right, loss=float("nan"))
    assert set(sequences.disagreement(checks | {"d": not_a_number})) == {"c", "d"}
    # Two that differ: it is unknown which is right.
    assert set(sequences.disagreement({"a": right, "b": dict(right, loss=3.0)})) == {"a", "b"}


def test_the_two_grus_are_told_apart():
    case = shapes.Case("gru", "infer", 2, 3, 5, 7)
    forms = {sequences.form(name, "gru") for name in PEERS if PEERS[name].does(case)}
    assert forms == {("before", "float32"), ("after", "float32")}
    assert sequences.form("ours", "lstm") == sequences.form("torch", "lstm")


def test_an_op_in_a_graph_is_what_each_more_adds(tmp_path):
    arguments = ["-m", "bench", "calls", "--quick", "--out", str(tmp_path)]
    printed = assert_ok(run_python(arguments, timeout=120, cwd=ROOT), "bench")
    result = json.loads((tmp_path / "calls.json").read_text())
    rows = [(row["cell"], tuple(row["shape"])) for row in result["rows"]]
    assert rows == [(cell, s) for cell in calls.CELLS for s in shapes.SEQUENCE_SHAPES_QUICK]
    for row in result["rows"]:
        assert "graph of one" not in row["ways"]
        assert all(way["median_ms"] > 0 for name, way in row["ways"].items() if name != calls.OP)
        assert f"{row['cell'].upper()} {', '.join(map(str, row['shape']))}" in printed
    result["rows"][0]["ways"][calls.OP] = {"median_ms": 0.0123}
    assert "| LSTM 1, 5, 8, 8 | 12.3 | " in calls.markdown(result)


def test_a_run_that_left_something_out_does_not_replace_a_whole_one():
    def folder(*options: str, interrupted: bool = False) -> pathlib.Path:
        return command._folder(
            command._arguments(["cells", *options]), {"interrupted": interrupted}
        )

    for option in ("--quick", "--null", "--shapes=1x2x3"):
        assert folder(option) != folder()
    some = command._arguments(["layers", "--variants", "masked"])
    assert command._folder(some, {}) != folder()
    assert folder(interrupted=True) != folder()


def test_shapes_are_read_from_text():
    assert shapes.parse("1x2x3", 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="4 numbers"):
        shapes.parse("1x2x3", 4)
