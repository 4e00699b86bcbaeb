"""What the bench tells of a result: losses, limits, targets, plots and the pages."""

from __future__ import annotations

import json
import re

import pytest
from helpers.children import ROOT

from bench import (
    layers,
    layers_report,
    limits,
    memory,
    pages,
    provenance,
    report,
    sequences,
    summary,
)
from bench import run as command

PNG = b"\x89PNG\r\n\x1a\n"


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
    assert "100% of the GEMM peak" in report.sequences_text(won)


def test_lost_rows_are_counted_where_the_rows_are_not_shown():
    lost, won = (summary.SECTIONS["sequences"](_sequence_result(ms)) for ms in (20.0, 5.0))
    assert "1 of 1 rows are slower than the fastest peer: [all rows](benchmarks.md" in lost
    assert "| **0.50** | 1.3 | **0.50** | 1 of 1 |" in lost
    assert "0 of 1 rows are slower" in won and "| 2.00 | 1.3 | 2.00 | 0 of 1 |" in won
    assert "**64, 10, 256, 256**" in report.sequences_markdown(_sequence_result(20.0))
    assert "**64, 10, 256, 256**" not in report.sequences_markdown(_sequence_result(5.0))


def test_a_machine_with_other_work_is_told():
    result = _sequence_result(8.0)
    result["machine"]["commit"] = "abc123-dirty"
    assert provenance.not_quiet(result) == ""
    assert "commit abc123 with uncommitted changes on cpu" in provenance.measured(result)
    result["peaks"].append({"gflops": 191.0})
    assert provenance.not_quiet(result) == ""  # within 5%
    result["peaks"].append({"gflops": 189.0})
    assert "200 GFLOP/s at the start and 189 at the end" in provenance.not_quiet(result)
    above = _sequence_result(4.0)
    assert "1 float32 time lies above the peak" in provenance.not_quiet(above)
    assert "at up to 125%" in provenance.not_quiet(above)
    above["rows"][0]["dtype"] = "bfloat16"  # the peak is of float32 GEMMs
    assert provenance.not_quiet(above) == ""


def test_what_no_op_could_reach_is_reported():
    # 5 ms of GEMMs at the peak and 3 ms of the call, against 10 ms of the fastest peer.
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


def test_what_lengths_save_is_told():
    result = _sequence_result(8.0)
    half = {"median_ms": 4.4, "gflops": 1.0}
    result["rows"].append(dict(result["rows"][0], lengths="half", peers={"ours": half}))
    assert "ours: half lengths take 0.55 to 0.55 of the time" in report.sequences_text(result)
    assert "above 0.6 (the target) at 0 of 1 shapes" in report.sequences_text(result)
    assert "64, 10, 256, 256 half" in report.sequences_text(result)
    half["median_ms"] = 5.2
    assert "above 0.6 (the target) at 1 of 1 shapes" in summary.SECTIONS["sequences"](result)


def test_the_block_ops_are_held_against_tensorflows():
    result = _sequence_result(8.0)
    assert "ours_block over tf_raw" not in report.sequences_text(result)
    peers = result["rows"][0]["peers"]
    peers["ours_block"], peers["tf_raw"] = ({"median_ms": ms, "gflops": 1.0} for ms in (20.0, 18.0))
    told = "ours_block over tf_raw: geometric mean 0.90 (target 2.0), lowest 0.90, under 0.95 at 1"
    for text in (report.sequences_markdown(result), summary.SECTIONS["sequences"](result)):
        assert told in text


def test_more_memory_than_tensorflow_is_shown_as_lost():
    machine = _sequence_result(1.0)["machine"]
    sizes = {"ours": 2**20, "ours_block": 2**22, "tf_raw": 2**21}
    row = {
        "cell": "lstm", "shape": [1, 2, 3, 4], "ratios": {"ours": 2.0, "ours_block": 0.5},
        "peers": {name: {"bytes": size} for name, size in sizes.items()},
    }  # fmt: skip
    result = {"bench": "memory", "machine": machine, "rows": [row]}
    assert "**1, 2, 3, 4** | 1.0 | 4.0 | 2.0 | 2.00 | 0.50 |" in memory.markdown(result)
    assert "<< more than TensorFlow" in memory.text(result)
    assert "0.50 to 2.00, geometric mean 1.00" in summary.SECTIONS["memory"](result)
    assert "1 of 2 rows are above TensorFlow's" in summary.SECTIONS["memory"](result)
    del row["ratios"]["ours_block"]
    assert "<<" not in memory.text(result)


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
    for draw in (plot.sequence_ratios, plot.peak_share):
        assert draw(result, tmp_path / f"{draw.__name__}.png").read_bytes().startswith(PNG)
    for sessions in (None, _inference_result()):
        assert plot.headline(result, sessions, tmp_path / "h.png").read_bytes().startswith(PNG)
    assert plot.stack_ratios(result, tmp_path / "a.png", "infer").read_bytes().startswith(PNG)
    assert plot.stack_ratios(result, tmp_path / "b.png", "train") is None
    (file,) = plot.costs(result, tmp_path)
    assert file.name == "sequences_cost_lstm_inference.png" and file.read_bytes().startswith(PNG)


def test_the_readme_shows_means_over_all_shapes_and_the_lowest():
    result = _sequence_result(5.0)
    (row,) = result["rows"]
    row["peers"]["keras"] = {"median_ms": 40.0}
    row["peers"]["keras_xla"] = {"median_ms": 20.0}
    slow = dict(row, peers=dict(row["peers"], torch={"median_ms": 2.5}))
    train = dict(row, kind="train", peers={k: row["peers"][k] for k in ("ours", "torch")})
    result["rows"] += [slow, train, dict(row, set="sweep-T")]
    bars = {(bar.kind, bar.library): bar for bar in summary.headline_bars(result)}
    assert list(bars) == [("train", "PyTorch"), ("infer", "Keras"), ("infer", "PyTorch")]
    assert bars["infer", "Keras"].mean == pytest.approx(4.0)  # with XLA: 20 ms over 5
    assert bars["infer", "PyTorch"].mean == pytest.approx(1.0)  # 2 and 0.5
    assert (bars["infer", "PyTorch"].lowest, bars["infer", "PyTorch"].shapes) == (0.5, 2)
    bars = {
        (bar.kind, bar.library): bar for bar in summary.headline_bars(result, _inference_result())
    }
    assert bars["infer", "PyTorch"].mean == pytest.approx(4.0)  # against a session
    assert list(bars) == [("train", "PyTorch"), ("infer", "Keras"), ("infer", "PyTorch")]
    text = summary.sessions_markdown(_inference_result())
    assert "any shape: 0.75× that of ONNX Runtime." in text
    text = summary.headline_markdown(result)
    assert "any shape" not in text and "(bench/results/readme.png)" in text
    train["peers"]["torch"] = {"median_ms": 2.0}
    assert "any shape: 0.40× that of PyTorch." in summary.headline_markdown(result)
    del slow["peers"]["torch"]  # not measured at all shapes: no mean of the others
    assert not any(
        b.library == "PyTorch" and b.kind == "infer" for b in summary.headline_bars(result)
    )


def test_no_plot_has_more_than_four_panels(tmp_path, monkeypatch):
    """Of all results, as they are drawn for the pages."""
    from bench import plot

    panels = []

    def count(figure, path):
        panels.append((path.name, sum(axis.get_visible() for axis in figure.axes)))
        plot.plt.close(figure)
        return path

    monkeypatch.setattr(plot, "_save", count)
    for name in ("cells", "sequences", "stacks", "bfloat16", "layers", "inference", "recompute"):
        result = json.loads((ROOT / "bench/results" / f"{name}.json").read_text(encoding="utf-8"))
        command._plots(result, tmp_path)
    files = {path.name for path in (ROOT / "bench/results").glob("*.png")} - {"readme.png"}
    assert {name for name, _ in panels} == files
    assert all(1 <= number <= 4 for _, number in panels), panels


def _inference_result() -> dict:
    """A made-up result of the bench of inference."""
    peers = {
        "ours_session": {"median_ms": 2.0, "gflops": 50.0},
        "ours_session_int8": {"median_ms": 0.5, "gflops": 200.0},
        "torch_call": {"median_ms": 8.0},
        "onnxruntime_call": {"median_ms": 3.0},
        "onnxruntime_one": {"median_ms": 1.5},
    }
    rows = [{"cell": "lstm", "kind": "serve", "shape": [1, 50, 64, 64], "peers": peers}]
    return _sequence_result(5.0) | {"bench": "inference", "rows": rows, "peak_gflops": 100.0}


def test_low_precision_may_exceed_the_peak_of_float32():
    result = _inference_result()
    assert provenance.not_quiet(result) == ""
    result["rows"][0]["peers"]["ours_session"]["gflops"] = 110.0
    assert "1 float32 time lies above the peak" in provenance.not_quiet(result)


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
    assert "takes 10 us more in the median (target under 60, reached)" in layers_report.text(
        reached
    )
    assert "takes 61 us more in the median (target under 60, missed)" in layers_report.text(missed)
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

    (file,) = plot.layers(_layers_result(25.0), tmp_path)
    assert file.name == "layers_masked.png" and file.read_bytes().startswith(PNG)
    assert plot.layers(_layers_result(5.0) | {"rows": []}, tmp_path) == []


def test_each_page_gets_its_section_of_layers(tmp_path):
    (tmp_path / "layers.json").write_text(json.dumps(_layers_result(5.0)))
    (tmp_path / "docs").mkdir()
    marked = "a\n<!-- bench:begin layers -->\n<!-- bench:end layers -->\nz\n"
    paths = [tmp_path / name for name in ("docs/performance.md", "docs/benchmarks.md")]
    for path in paths:
        path.write_text(marked)
    command._readme(command._arguments(["readme", f"--root={tmp_path}", f"--results={tmp_path}"]))
    short, long = (path.read_text() for path in paths)
    for text in (short, long):
        assert text.startswith("a\n<!-- bench:begin layers -->") and text.endswith("-->\nz\n")
    assert "(../bench/results/layers_masked.png)" in short and "layers_plain" not in short
    assert "(benchmarks.md#layers)" in short
    row = "| LSTM, 64, 10, 256, 256 | 5.00 |"
    assert row in long and row not in short


def test_the_readme_gets_its_chart(tmp_path):
    (tmp_path / "sequences.json").write_text(json.dumps(_sequence_result(5.0)))
    (tmp_path / "README.md").write_text(
        "<!-- bench:begin sequences --><!-- bench:end sequences -->"
    )
    command._readme(command._arguments(["readme", f"--root={tmp_path}", f"--results={tmp_path}"]))
    (chart,) = re.findall(r"\]\((\S+\.png)\)", (tmp_path / "README.md").read_text())
    assert (tmp_path / chart).read_bytes().startswith(PNG)


@pytest.mark.parametrize("page", pages.PAGES)
def test_pages_are_what_the_results_give(tmp_path, page):
    (tmp_path / page).parent.mkdir(exist_ok=True)
    text = (ROOT / page).read_text(encoding="utf-8")
    (tmp_path / page).write_text(text, encoding="utf-8")
    (line,) = pages.write(tmp_path, ROOT / "bench/results")
    # None of its sections is missing, but those that were never measured, as on a GPU.
    never = {name for name in ("gpu",) if not (ROOT / "bench/results" / f"{name}.json").exists()}
    assert ", ".join(name for name in pages.PAGES[page] if name not in never) in line
    again = (tmp_path / page).read_text(encoding="utf-8")
    assert again == text, f"`python -m bench readme` writes {page} anew"


def test_readme_section_is_replaced():
    page = "a\n<!-- bench:begin cells -->\nold\n<!-- bench:end cells -->\nz\n"
    new = report.replace_section(page, "cells", r"new \1")
    assert new == ("a\n<!-- bench:begin cells -->\n\nnew \\1\n\n<!-- bench:end cells -->\nz\n")
    assert report.replace_section(new, "cells", r"new \1") == new
    with pytest.raises(ValueError, match="sequences"):
        report.replace_section(page, "sequences", "new")
