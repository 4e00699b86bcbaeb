"""The bench itself: that it measures what it says and refuses wrong peers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import signal
import time

import keras
import numpy as np
import pytest
from helpers.children import ROOT, assert_ok, run_python

from bench import (
    calls,
    cells,
    data,
    first_calls,
    jit,
    process,
    questions,
    sequences,
    shapes,
    steps,
    tidy,
    timing,
)
from bench import run as command
from bench.peers import PEERS, tensorflow_base, worker

PNG = b"\x89PNG\r\n\x1a\n"
_QUICK = ("--quick", "--shapes", "3x4x7x9", "--only", "lstm")
# Benches that measure in their own process: all in one here, which imports TensorFlow once.
_IN_PROCESS = {
    "cells": ("--quick",),
    **dict.fromkeys(("calls", "jit", "memory", "recompute", "derivatives", "layer_norm"), _QUICK),
    "first_calls": (*_QUICK, "infer", "--rounds", "1"),
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> tuple[pathlib.Path, str]:
    """The folder and the output of quick runs, in a process of their own.

    Of its own, because the bench sets the number of threads, which a started TensorFlow refuses.
    """
    folder = tmp_path_factory.mktemp("bench")
    commands = [[bench, *more, "--out", str(folder)] for bench, more in _IN_PROCESS.items()]
    code = f"from bench.run import main\nfor command in {commands}: main(command)"
    return folder, assert_ok(run_python(["-c", code], timeout=3000, cwd=ROOT), "bench")


@pytest.mark.xdist_group("quick_bench")  # one worker, since the fixture takes minutes
@pytest.mark.parametrize("bench", _IN_PROCESS)
def test_a_quick_run_answers_its_questions(quick, bench):
    folder, printed = quick
    result = tidy.read(folder / f"{bench}.json")
    assert result["machine"]["cpu"] and result["machine"]["versions"]["python"]
    assert not any("missing" in row for row in result["rows"])
    for row in result["rows"]:
        if row["contender"] != calls.OP and row["unit"] == "ms":
            assert 0 < row["min"] <= row["p25"] <= row["median"] <= row["p75"]
    have = {row["contender"] for row in result["rows"]}
    for question in questions.of(bench):
        wanted = {name for column in question.columns for name in column.contenders}
        assert have >= {name for name in wanted if not name.startswith("recompute=")}
        assert question.asks in printed
        png = folder / f"{question.key}.png"
        assert png.read_bytes().startswith(PNG) if question.plotted else not png.exists()


@pytest.mark.xdist_group("quick_bench")
def test_ops_and_both_measurements_of_recompute_are_complete(quick):
    rows = tidy.read(quick[0] / "cells.json")["rows"]
    wanted = {(op, shape) for op in cells.OPS for shape in ((1, 8, 8), (3, 7, 9))}
    assert {(row["op"], tuple(row["shape"])) for row in rows} == wanted
    rows = tidy.read(quick[0] / "recompute.json")["rows"]
    found = {(row["contender"], row["unit"]) for row in rows}
    assert found == {(f"recompute={b}", unit) for b in (False, True) for unit in ("bytes", "ms")}


@pytest.mark.parametrize(
    ("bench", "only"),
    [("inference", ()), ("loops", ("gru_before", "train")), ("single_steps", ("gru", "infer"))],
)
def test_all_peers_compute_the_same_and_are_timed(tmp_path, bench, only):
    """Each in a process of its own, for sessions, models, and cells in loops and by hand."""
    arguments = ["-m", "bench", bench, "--quick", "--shapes", "3x4x7x9", "--only", *only]
    arguments = arguments if only else arguments[:-1]
    assert_ok(run_python([*arguments, "--out", str(tmp_path)], timeout=300, cwd=ROOT), "bench")
    result = json.loads((tmp_path / f"{bench}.json").read_text())
    assert len(result["peaks"]) == 2 and result["machine"]["load_at_end"] >= 0
    assert result["seconds"] >= 0
    for case in shapes.cases(bench, only, shapes=[(3, 4, 7, 9)]):
        rows = [row for row in result["rows"] if case.fields().items() <= row.items()]
        assert {row["contender"] for row in rows} == {n for n, e in PEERS.items() if e.does(case)}
        assert all(row["median"] > 0 for row in rows), rows


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
    assert out["median"] == pytest.approx(2.5)
    assert out["min"] == pytest.approx(1.0)
    assert out["calls"] == 4 and out["rounds"] == pytest.approx([2.0, 51.0])
    assert timing.summary([[0.008]], per=4)["median"] == pytest.approx(2.0)


def test_flops_count_the_products_of_what_the_rows_have():
    assert shapes.Case("gru", "train", 2, 3, 5, 7).flops() == 3 * 2 * 3 * 2 * (3 * 7) * (5 + 7)
    stack = shapes.Case("rnn", "infer", 2, 4, 5, 7, layers=2, directions=2, lengths="spread")
    assert stack.row_lengths() == [1, 3]
    assert stack.flops() == 2 * (1 + 3) * 2 * 7 * ((5 + 7) + (14 + 7))
    half = dataclasses.replace(stack, lengths="half")
    assert half.row_lengths() == [2, 2] and half.flops() == stack.flops()


def _who(case: shapes.Case) -> set[str]:
    return {name for name in PEERS if PEERS[name].default and PEERS[name].does(case)}


def _layer_case(variant: str, cell: str = "lstm", kind: str = "train") -> shapes.Case:
    (case,) = shapes.cases("layers", (variant, cell, kind), [(3, 4, 5, 6)])
    return case


def test_who_runs_what():
    case = shapes.Case("gru", "infer", 2, 3, 5, 7)
    stack = dataclasses.replace(case, layers=2, directions=2)
    for one, wanted in (
        (stack, "ours_cudnn torch onnxruntime"),
        (dataclasses.replace(stack, kind="train"), "ours_cudnn torch"),
        (dataclasses.replace(case, dtype="bfloat16"), "ours ours_v4 torch"),
        (_layer_case("masked"), "ours_layer keras keras_xla torch"),
        (_layer_case("recurrent_dropout"), "ours_layer keras keras_xla"),
    ):
        assert _who(one) == set(wanted.split())


def test_a_masked_batch_has_rows_of_all_lengths_in_random_order():
    case = shapes.Case("gru", "train", 16, 32, 3, 2, lengths="random", as_layer=True)
    lengths = case.row_lengths()
    spread = dataclasses.replace(case, lengths="spread").row_lengths()
    assert sorted(lengths) == spread and lengths != spread
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
    names = ("ours_layer", "keras", "torch", "ours_cell", "keras_cell", "ours_cudnn")
    return {name: worker.Server(name, 1) for name in names}


@pytest.mark.parametrize(
    ("bench", "cell", "peers"),
    [
        *itertools.product(("loops",), shapes.GATES, ["ours_cell keras_cell"]),
        *itertools.product(
            ("single_steps",), ("lstm", "gru", "gru_before", "rnn"), ["ours_cell keras_cell"]
        ),
        *itertools.product(("stacks",), ("lstm", "gru", "rnn"), ["ours_cudnn torch"]),
    ],
)
def test_cells_and_stacks_of_all_peers_compute_the_same(servers, bench, cell, peers):
    case = shapes.cases(bench, [cell, "train"], [(3, 4, 5, 6)])[0]
    checks = {n: server.prepare(case) for n, server in servers.items() if PEERS[n].does(case)}
    assert set(checks) == set(peers.split())
    assert sequences.disagreement(checks) == {}
    assert all(check["x_grad_norm"] > 0 for check in checks.values())


def test_a_cell_that_is_not_on_the_op_is_refused(servers, monkeypatch):
    from tf_blockrnn.layers import LSTMCell, _cell_loop

    monkeypatch.setattr(LSTMCell, "why_not_fused", "a reason")
    monkeypatch.setattr(_cell_loop, "why_not_fused", lambda layer: "a reason")
    for bench in ("single_steps", "loops"):
        (case,) = shapes.cases(bench, ["lstm", "infer"], [(3, 4, 5, 6)])
        with pytest.raises(RuntimeError, match="does not run on the op: a reason"):
            servers["ours_cell"].prepare(case)


def test_first_calls_that_compute_something_else_or_fail_are_told(monkeypatch):
    answers = {name: {"seconds": {name: 1.0}, "norm": 2.0} for name in first_calls.CONTENDERS}

    def one(contender: str, *_: object) -> dict:
        if isinstance(answers[contender], str):
            raise process.NoAnswer(answers[contender])
        return answers[contender]

    monkeypatch.setattr(first_calls, "_one", one)
    (case,) = shapes.cases("first_calls", ["lstm", "train"], [(3, 4, 5, 6)])
    arguments = (case, 1, timing.Plan(rounds=3), lambda _: None)
    assert [len(row["rounds"]) for row in first_calls.measure(*arguments)] == [3] * 4
    answers["keras"] = "why not"
    rows = {row["contender"]: row for row in first_calls.measure(*arguments)}
    assert rows["keras"]["missing"] == "why not" and rows["ours"]["median"] == 1000.0
    answers["keras, XLA"]["norm"] = 2.1
    with pytest.raises(RuntimeError, match="the results differ"):
        first_calls.measure(*arguments)


@pytest.mark.parametrize(
    ("cell", "variant"), [("lstm", "masked"), ("gru", "masked"), ("gru", "recurrent_dropout")]
)
def test_the_layers_of_all_peers_compute_the_same(servers, cell, variant):
    case = _layer_case(variant, cell)
    checks = {n: server.prepare(case) for n, server in servers.items() if PEERS[n].does(case)}
    assert len(checks) == (2 if variant == "recurrent_dropout" else 3)
    assert sequences.disagreement(checks) == {}
    assert all(check["x_grad_norm"] > 0 for check in checks.values())


def test_dropout_is_fixed_for_the_check_and_acts(servers):
    server = servers["ours_layer"]
    check = server.prepare(_layer_case("recurrent_dropout"))
    prepared = server._prepared
    # What is timed draws anew at each call, what is checked does not.
    assert prepared.call()[0].numpy().tolist() != prepared.call()[0].numpy().tolist()
    assert prepared.outcome().h.tolist() == prepared.outcome().h.tolist()
    assert sequences.disagreement({"a": check, "b": server.prepare(_layer_case("plain"))})


def test_a_layer_that_does_not_run_on_the_op_is_no_contender_of_ours(servers, monkeypatch):
    from tf_blockrnn.layers import LSTM

    monkeypatch.setattr(LSTM, "why_not_fused", "a reason")
    with pytest.raises(RuntimeError, match="does not run on the op: a reason"):
        servers["ours_layer"].prepare(_layer_case("plain"))


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


def test_an_op_in_a_graph_is_what_each_more_adds(monkeypatch):
    medians = {"eager": 5.0, "graph of one": 3.0, "graph of many": 13.0}
    rows = [{"contender": name, "median": ms} for name, ms in medians.items()]
    monkeypatch.setattr(calls, "_ways", lambda *_: {})
    monkeypatch.setattr(tidy, "measured", lambda *_: rows)
    case = shapes.Case("lstm", "infer", 1, 2, 3, 4)
    found = calls.measure(None, case, timing.Plan(), print)
    assert {row["contender"]: row["median"] for row in found} == {calls.OP: 1.0, "eager": 5.0}


def test_a_way_of_calling_that_computes_something_else_is_refused(tf):
    ways = {name: lambda: [tf.ones([2])] for name in ("eager", "concrete function")}
    jit._compare_results(ways)
    ways["tf.function"] = lambda: [tf.constant([1.0, 1.1])]
    with pytest.raises(AssertionError, match=r"tf\.function"):
        jit._compare_results(ways)


def test_a_training_step_that_computes_something_else_is_refused(tf, monkeypatch):
    (case,) = shapes.cases("derivatives", ["rnn"], [(2, 3, 4, 5)])
    made = steps._layers(case)
    other = keras.layers.SimpleRNN(5, return_sequences=True, activation="relu")
    monkeypatch.setattr(steps, "_layers", lambda _: {**made, "keras": other})
    with pytest.raises(RuntimeError, match="ours has the loss"):
        steps.measure(tf, case, timing.Plan(), lambda _: None)


def test_a_model_that_keras_does_not_compile_is_refused():
    class NoXla(keras.layers.LSTM):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.supports_jit = False

    layers = type("layers", (), {"LSTM": NoXla})
    case = shapes.Case("lstm", "train", 1, 2, 3, 4)
    with (
        pytest.warns(UserWarning, match="jit_compile"),
        pytest.raises(RuntimeError, match="does not compile with jit_compile=True"),
    ):
        jit._Model(layers, case, jit_compile=True)


def test_steps_of_fit_are_timed_without_its_start():
    case = shapes.Case("gru", "train", 2, 3, 4, 5)
    model = jit._Model(keras.layers, case, jit_compile=False)
    assert np.isfinite(model.first_loss())
    times = model.fit(3, 2)
    assert len(times) == 3 and min(times) > 0


def test_an_interrupted_run_keeps_its_rows():
    def measure(case, note):
        if case == 2:
            raise KeyboardInterrupt
        return [{"contender": str(case), "unit": "ms", "median": 1.0}]

    result = tidy.collect(tidy.new("cells", 1, timing.Plan()), [0, 1, 2, 3], measure)
    assert result["interrupted"] and [row["contender"] for row in result["rows"]] == ["0", "1"]
    with pytest.raises(KeyboardInterrupt):
        tidy.collect(tidy.new("cells", 1, timing.Plan()), [2], measure)


def test_a_run_that_left_something_out_does_not_replace_a_whole_one():
    def folder(*options: str, interrupted: bool = False) -> pathlib.Path:
        arguments = command._arguments(["layers", *options])
        return command._folder(arguments, {"interrupted": interrupted})

    assert folder() == tidy.FOLDER
    for option in ("--quick", "--only=masked", "--shapes=1x2x3x4", "--peers=keras"):
        assert folder(option) != folder()
    assert folder(interrupted=True) != folder()


def test_a_peer_that_fails_or_ends_has_no_answer(tmp_path):
    """It is stopped between the questions, and what it prints goes to the log."""
    log = tmp_path / "log"
    with contextlib.closing(process.PeerProcess("onnxruntime", 1, log)) as peer:
        with pytest.raises(process.NoAnswer, match="no attribute 'gemm'"):
            peer.ask("gemm", 8, 1)
        status, end = pathlib.Path(f"/proc/{peer._process.pid}/status"), time.monotonic() + 20
        while "\nState:\tT" not in status.read_text():
            assert time.monotonic() < end, "it is not stopped"
            time.sleep(0.01)
        assert "Traceback" in log.read_text()
        peer.ask("prepare", shapes.Case("lstm", "infer", 2, 3, 5, 7))
        assert len(peer.ask("run", 3, 1)) == 3
        peer.signal(signal.SIGKILL)
        with pytest.raises(process.NoAnswer, match="killed by signal 9"):
            peer.ask("run", 3, 1)
    assert not peer.alive()


def test_cases_are_selected_by_words():
    hard = [case for case in shapes.cases("sequences") if case.group == "hard"]
    some = shapes.cases("sequences", ["hard", "lstm", "infer"])
    assert some == [c for c in hard if (c.cell, c.kind) == ("lstm", "infer")]
    assert len(shapes.cases("sequences", ["lstm"], [(1, 2, 3, 4)])) == 2  # no shape twice
    for bench, wrong in (("stacks", "masked"), ("layers", "nonsense")):
        with pytest.raises(ValueError, match=f"{bench} has no {wrong}"):
            shapes.cases(bench, [wrong])
    with pytest.raises(SystemExit, match="cells has no lstm"):
        command.main(["cells", "--only", "lstm"])


def test_shapes_are_read_from_text():
    assert shapes.parse("1x2x3", 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="4 numbers"):
        shapes.parse("1x2x3", 4)
