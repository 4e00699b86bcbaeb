"""The bench itself: that it measures what it says, refuses wrong peers and shows losses."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
from children import ROOT, assert_ok, run_python

from bench import (
    calls,
    data,
    layers,
    layers_report,
    limits,
    op_cases,
    pages,
    provenance,
    report,
    sequences,
    shapes,
    summary,
    timing,
)
from bench import run as command
from bench.peers import PEERS, base, tensorflow_base, worker

_PNG = b"\x89PNG\r\n\x1a\n"


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
    assert (folder / "cells.png").read_bytes().startswith(_PNG)
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
    monkeypatch.setattr(LSTM, "_say_if_not_fused", lambda self: None)
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
    # Two that differ: nobody knows which is right.
    assert set(sequences.disagreement({"a": right, "b": dict(right, loss=3.0)})) == {"a", "b"}


def test_the_two_grus_are_told_apart():
    case = shapes.Case("gru", "infer", 2, 3, 5, 7)
    forms = {sequences.form(name, "gru") for name in PEERS if PEERS[name].does(case)}
    assert forms == {"before", "after"}
    assert sequences.form("ours", "lstm") == sequences.form("torch", "lstm")


def _sequence_result(ours_ms: float) -> dict:
    """A made-up result of one row, ours against a peer at 10 ms."""
    row = {
        "set": "grid", "cell": "lstm", "kind": "infer", "shape": [64, 10, 256, 256], "flops": 10**9,
        "peers": {
            "ours": {"median_ms": ours_ms, "gflops": 1e3 / ours_ms},
            "torch": {"median_ms": 10.0, "gflops": 100.0},
            "keras": {"error": "why not"},
        },
    }  # fmt: skip
    sequences.compare(row)
    machine = {
        "cpu": "cpu", "cpu_family_model_stepping": ["1", "2", "3"], "cores": 2, "flags": ["avx2"],
        "versions": {"tensorflow": "2"}, "time": "2000-01-01T00:00:00Z",
    }  # fmt: skip
    return {
        "bench": "sequences", "machine": machine, "peak_gflops": 200.0, "rows": [row],
        "peaks": [{"gflops": 200.0, "by": "torch"}], "peer_notes": {"torch": "note"},
    }  # fmt: skip


def test_a_lost_row_is_shown_as_lost():
    lost, won = _sequence_result(20.0), _sequence_result(5.0)
    assert lost["rows"][0]["ratios"] == {"ours": 0.5} and lost["rows"][0]["fastest"] == "torch"
    assert "<<" in report.sequences_text(lost) and "<<" not in report.sequences_text(won)
    assert "**0.50**" in report.sequences_markdown(lost)
    assert "no time for keras: why not" in report.sequences_text(won)
    assert "100% of the product peak" in report.sequences_text(won)


def test_lost_rows_are_counted_where_the_rows_are_not_shown():
    lost, won = (summary.SECTIONS["sequences"](_sequence_result(ms)) for ms in (20.0, 5.0))
    assert "1 of 1 rows are slower than the fastest peer: [all rows](docs/benchmarks.md" in lost
    assert "| **0.50** | 1.3 | **0.50** | 1 of 1 |" in lost
    assert "0 of 1 rows are slower" in won and "| 2.00 | 1.3 | 2.00 | 0 of 1 |" in won
    assert "**64, 10, 256, 256**" in report.sequences_markdown(_sequence_result(20.0))
    assert "**64, 10, 256, 256**" not in report.sequences_markdown(_sequence_result(5.0))


def test_a_machine_with_other_work_is_told():
    result = _sequence_result(8.0)
    result["machine"]["commit"] = "abc123-dirty"
    assert provenance.not_quiet(result) == ""
    assert "commit abc123 with changes of its own on cpu" in provenance.measured(result)
    result["peaks"].append({"gflops": 191.0})
    assert provenance.not_quiet(result) == ""  # within 5%
    result["peaks"].append({"gflops": 189.0})
    assert "200 GFLOP/s at the start and 189 at the end" in provenance.not_quiet(result)
    above = _sequence_result(4.0)
    assert "1 float32 time lies above the peak" in provenance.not_quiet(above)
    assert "at up to 125%" in provenance.not_quiet(above)
    above["rows"][0]["dtype"] = "bfloat16"  # the peak is of float32 products
    assert provenance.not_quiet(above) == ""


def test_what_no_op_could_reach_is_told():
    # 5 ms of products at the peak and 3 ms of the call, against 10 ms of the fastest peer.
    missed = limits.markdown(_sequence_result(20.0) | {"empty_call_ms": 3.0})
    row = "LSTM inference, 64, 10, 256, 256 | 20.0 | 3.00 | 5.00 | 12.0 | torch 10.0 | 0.50 | 1.25"
    assert row in missed
    assert "LSTM inference: 0.50 reached, 1.25 the highest possible, 1.3 wanted" in missed
    assert row[:32] not in limits.markdown(_sequence_result(9.0) | {"empty_call_ms": 3.0})


def test_what_a_stack_lost_is_told_of_the_stack():
    result = _sequence_result(20.0) | {"empty_call_ms": 3.0, "bench": "stacks"}
    assert "| torch" not in limits.markdown(result)  # `ours` is none
    row = result["rows"][0]
    row["peers"]["ours_cudnn"] = row["peers"].pop("ours")
    sequences.compare(row)
    assert "| 20.0 | 3.00 | 5.00 | 12.0 | torch 10.0 | 0.50 | 1.25 |" in limits.markdown(result)


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


def test_what_lengths_save_is_told():
    result = _sequence_result(8.0)
    half = {"median_ms": 4.4, "gflops": 1.0}
    result["rows"].append(dict(result["rows"][0], lengths="half", peers={"ours": half}))
    assert "ours: half lengths take 0.55 to 0.55 of the time" in report.sequences_text(result)
    assert "64, 10, 256, 256 half" in report.sequences_text(result)


def test_the_gain_of_bfloat16_is_shown():
    result = _sequence_result(8.0)
    result["rows"][0]["dtype"] = "float32"
    peers = {"ours": {"median_ms": 4.0}, "ours_v4": {"median_ms": 6.0}}
    result["rows"].append(dict(result["rows"][0], dtype="bfloat16", peers=peers))
    assert "| 4.00 | 6.00 | 8.00 | - | 1.50 | 2.00 | - |" in report.bfloat16_markdown(result)


def test_sequence_plots_are_drawn(tmp_path):
    from bench import plot

    result = _sequence_result(5.0)
    result["rows"].append(dict(result["rows"][0], set="sweep-T"))
    for draw in (plot.sequence_ratios, plot.peak_share, plot.cost):
        assert draw(result, tmp_path / f"{draw.__name__}.png").read_bytes().startswith(_PNG)


def _layers_result(ours_ms: float, above_us: float = 10.0) -> dict:
    """A made-up result of a masked training of both cells: Keras' faster takes 30 ms."""
    rows = []
    for cell in ("lstm", "gru"):
        peers = {
            "ours_layer": {"median_ms": ours_ms},
            "keras": {"median_ms": 60.0},
            "keras_xla": {"median_ms": 30.0},
            "torch": {"median_ms": 20.0},
        }
        rows.append({
            "variant": "masked", "kind": "train", "cell": cell, "shape": [64, 10, 256, 256],
            "peers": peers,
        })  # fmt: skip
        layers.compare(rows[-1])
    cost = {
        "function_layer_us": 50 + above_us, "function_op_us": 50.0, "function_above_us": above_us,
        "eager_layer_us": 200.0, "eager_op_us": 80.0, "eager_above_us": 120.0,
    }  # fmt: skip
    result = _sequence_result(1.0) | {"bench": "layers", "rows": rows, "call_target_us": 60.0}
    result |= {"calls": {"lstm": cost, "gru": {"error": "why not"}}, "call_shape": [1, 1, 16, 16]}
    return result | {"summary": layers.summarise(result)}


def test_layers_are_held_against_the_faster_keras():
    result = _layers_result(15.0)
    assert result["rows"][0]["layer_ratios"] == pytest.approx({"keras": 2.0, "torch": 20 / 15})
    by_cell = {entry["cell"]: entry for entry in result["summary"]}
    assert set(by_cell) == {"lstm", "gru", "both"}
    assert by_cell["both"]["keras"]["shapes"] == 2 and by_cell["both"]["target"] == 3.0
    row = {"peers": {"ours_layer": {"median_ms": 1.0}, "keras": {"error": "no"}}}
    layers.compare(row)
    assert row["layer_ratios"] == {}


def test_targets_of_layers_are_told_reached_or_missed():
    reached, missed = _layers_result(10.0), _layers_result(10.1, above_us=61.0)
    assert "| both, masked, training | 3.00 |" in layers_report.markdown(reached)
    assert "3, reached" in layers_report.text(reached)
    assert "3, missed" not in layers_report.text(reached)
    assert "| both, masked, training | **2.97** |" in layers_report.markdown(missed)
    assert "3, reached" not in layers_report.text(missed)
    assert "costs 10 us (target under 60, reached)" in layers_report.text(reached)
    assert "costs 61 us (target under 60, missed)" in layers_report.text(missed)
    assert "GRU, cost of a call: why not." in layers_report.text(reached)
    # A mean over what is left after a failure reaches nothing.
    reached["rows"][0]["layer_ratios"].clear()
    reached["summary"] = layers.summarise(reached)
    assert "3, not measured at 1 of 2" in layers_report.text(reached)


def test_a_lost_row_of_layers_is_shown_as_lost():
    lost, won = _layers_result(25.0), _layers_result(5.0)
    assert "| 1.20 | **0.80** |" in layers_report.markdown(lost)
    assert "<< 0.80" in layers_report.text(lost) and "<<" not in layers_report.text(won)
    won["rows"][0]["peers"]["torch"] = {"error": "why not"}
    assert "no time for torch: why not" in layers_report.text(won)


def test_layers_are_plotted(tmp_path):
    from bench import plot

    assert plot.layers(_layers_result(25.0), tmp_path / "a.png").read_bytes().startswith(_PNG)
    assert plot.layers(_layers_result(5.0) | {"rows": []}, tmp_path / "b.png") is None


def test_each_page_gets_its_section_of_layers(tmp_path):
    (tmp_path / "layers.json").write_text(json.dumps(_layers_result(5.0)))
    (tmp_path / "docs").mkdir()
    marked = "a\n<!-- bench:begin layers -->\n<!-- bench:end layers -->\nz\n"
    paths = [tmp_path / name for name in ("README.md", "docs/benchmarks.md")]
    for path in paths:
        path.write_text(marked)
    command._readme(command._arguments(["readme", f"--root={tmp_path}", f"--results={tmp_path}"]))
    short, long = (path.read_text() for path in paths)
    for text in (short, long):
        assert text.startswith("a\n<!-- bench:begin layers -->") and text.endswith("-->\nz\n")
    assert "(bench/results/layers.png)" in short and "(docs/benchmarks.md#layers)" in short
    row = "| LSTM, 64, 10, 256, 256 | 5.00 |"
    assert row in long and row not in short


@pytest.mark.parametrize("page", pages.PAGES)
def test_pages_are_what_the_results_give(tmp_path, page):
    (tmp_path / page).parent.mkdir(exist_ok=True)
    text = (ROOT / page).read_text(encoding="utf-8")
    (tmp_path / page).write_text(text, encoding="utf-8")
    (line,) = pages.write(tmp_path, ROOT / "bench/results")
    assert ", ".join(pages.PAGES[page]) in line  # none of its sections is missing
    again = (tmp_path / page).read_text(encoding="utf-8")
    assert again == text, f"`python -m bench readme` writes {page} anew"


def test_readme_section_is_replaced():
    page = "a\n<!-- bench:begin cells -->\nold\n<!-- bench:end cells -->\nz\n"
    new = report.replace_section(page, "cells", r"new \1")
    assert new == ("a\n<!-- bench:begin cells -->\n\nnew \\1\n\n<!-- bench:end cells -->\nz\n")
    assert report.replace_section(new, "cells", r"new \1") == new
    with pytest.raises(ValueError, match="sequences"):
        report.replace_section(page, "sequences", "new")


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
