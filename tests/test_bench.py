"""The bench itself: that it measures what it says, refuses wrong peers and shows losses."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from bench import op_cases, report, sequences, shapes, timing
from bench import run as command
from bench.peers import PEERS

_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def quick_cells(tmp_path_factory, pytestconfig) -> tuple[pathlib.Path, str]:
    """The folder and the output of one quick run of the cells bench, in a process of its own."""
    import os
    import subprocess
    import sys

    root = pathlib.Path(__file__).resolve().parent.parent
    folder = tmp_path_factory.mktemp("bench")
    # Of its own, because the bench sets the number of threads, which a started TensorFlow refuses.
    done = subprocess.run(
        [sys.executable, "-m", "bench", "cells", "--quick", "--out", str(folder)],
        cwd=root, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


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
    assert folder(interrupted=True) != folder()


def test_shapes_are_read_from_text():
    assert shapes.parse("1x2x3", 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="4 numbers"):
        shapes.parse("1x2x3", 4)
