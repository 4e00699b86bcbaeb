"""The bench of inference with packed weights, run with tiny shapes and times."""

from __future__ import annotations

import json

import pytest
from helpers.children import ROOT, assert_ok, run_python

from bench import inference, inference_report, sequences, shapes
from bench.peers import PEERS

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("inference")
    arguments = ["-m", "bench", "inference", "--quick", "--out", str(folder)]
    assert_ok(run_python(arguments, timeout=300, cwd=ROOT), "bench")
    return json.loads((folder / "inference.json").read_text())


@pytest.mark.parametrize("cell", inference.groups({"rows": [{"cell": "lstm"}, {"cell": "gru"}]}))
def test_all_contenders_compute_the_same_and_are_timed(quick, cell):
    for models in (False, True):
        rows = inference.groups(quick, models)[cell]
        assert [tuple(row["shape"]) for row in rows] == list(shapes.SEQUENCE_SHAPES_QUICK)
        case = shapes.Case(cell, "serve", 1, 5, 8, 8, as_layer=models)
        who = {name for name, entry in PEERS.items() if entry.does(case)}
        for row in rows:
            assert set(row["peers"]) == who and set(sequences.medians(row)) == who, row["peers"]


def _row(cell="lstm", **times):
    row = {"cell": cell, "shape": [1, 1, 128, 128], "set": "sessions", "kind": "serve"}
    row["peers"] = {name: {"median_ms": ms} for name, ms in times.items()}
    inference.compare(row)
    return row


def test_each_precision_has_its_own_fastest_peer():
    row = _row(
        ours_session=0.010, onnxruntime_call=0.020, torch_call=0.008,
        ours_session_int8=0.004, onnxruntime_int8=0.002, ours_session_bfloat16=0.001,
    )  # fmt: skip
    assert row["session_ratios"] == pytest.approx({"float32": 0.8, "int8": 0.5})


def test_what_misses_its_target_is_marked():
    rows = [_row(ours_session=0.010, onnxruntime_call=0.008)]
    model = _row(ours_model=1.0, ours_frozen=0.9) | {"variant": "plain"}
    result = {"rows": [*rows, model], "summary": []}
    result["summary"] = inference.summarise(result)
    text = inference_report.text(result)
    assert "<< 0.80" in text and "10.0 µs (target under 8, missed)" in text and "<< 0.90" in text
    won = {"rows": [_row(ours_session=0.005, onnxruntime_call=0.008)]}
    won["summary"] = inference.summarise(won)
    assert "<<" not in inference_report.text(won) and "reached" in inference_report.text(won)


def test_latency_is_plotted(tmp_path):
    from bench import plot

    rows = [_row(ours_session=h / 1e3, torch_call=h / 5e2) for h in (32, 64)]
    for row, units in zip(rows, (32, 64), strict=True):
        row["shape"] = [1, 1, units, units]
    made = plot.inference(
        {"rows": rows, "bench": "inference", "machine": MACHINE}, tmp_path / "a.png"
    )
    assert made.read_bytes().startswith(PNG)
    assert plot.inference({"rows": [], "bench": "inference"}, tmp_path / "b.png") is None


MACHINE = {
    "cpu": "A", "cpu_family_model_stepping": ["6", "1", "2"], "cores": 2, "flags": ["avx2"],
    "versions": {"tensorflow": "2.21.0"}, "time": "2030-01-02T00:00:00", "commit": "abc",
}  # fmt: skip
