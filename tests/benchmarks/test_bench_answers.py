"""How a result is reported: ratios, means, whether the machine was quiet, pages and plots."""

from __future__ import annotations

import copy
import math
import re

import pytest
from helpers.children import ROOT

from bench import pages, plot, provenance, questions, readme, shapes, tables, tidy, timing

PNG = b"\x89PNG\r\n\x1a\n"
STORED = pages.read(tidy.FOLDER)
SEQUENCES, LAYERS, STACKS, BFLOAT16, RECOMPUTE, MEMORY = (
    questions.BY_KEY[key]
    for key in ("sequences", "layers", "stacks", "bfloat16", "recompute", "memory")
)


def _row(contender: str, median: float, **fields: object) -> tidy.Row:
    """A measurement of 1 GFLOP in quiet rounds."""
    row = shapes.Case("lstm", "infer", 64, 10, 256, 256).fields() | {"flops": 10**9}
    numbers = {"unit": "ms", "median": median, "rounds": [median] * 3}
    return {**row, "contender": contender, **numbers, **fields}


def _result(*rows: tidy.Row, bench: str = "sequences") -> dict:
    """A result of a machine that was quiet, with a GEMM peak of 200 GFLOP/s."""
    machine = {
        "cpu": "cpu", "cpu_family_model_stepping": ["1", "2", "3"], "cores": 2, "threads": 2,
        "flags": ["avx2"], "versions": {"tensorflow": "2", "torch": "3", "keras": "4"},
        "time": "2000-01-01T00:00:00Z", "load_at_start": 0.5, "load_at_end": 0.5,
    }  # fmt: skip
    peaks = [{"gflops": 200.0}, {"gflops": 191.0}]
    return {"bench": bench, "machine": machine, "peaks": peaks, "rows": list(rows)}


def _cells(question: questions.Question, result: dict) -> list[dict[str, str]]:
    """The Markdown table, by the heads of its columns."""
    head, _, *rows = (line.split(" | ") for line in tables.markdown(question, result).splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_a_ratio_is_of_the_fastest_other_over_ours_and_bold_where_we_are_slower():
    rows = [_row("ours", 10.0), _row("keras", 40.0), _row("keras_xla", 15.0), _row("torch", 8.0)]
    (found,) = _cells(SEQUENCES, _result(*rows, _row("ours", 1.0, set="of another question")))
    assert found["| B, T, I, H"] == "| LSTM inference 64, 10, 256, 256"
    assert found["ours, ms"] == "10.0" and found["Keras / ours"] == "1.50"
    assert found["PyTorch / ours"] == "**0.80**"
    assert found["ours of peak |"] == "50% |"  # 100 of 200 GFLOP/s
    assert "<< 0.80" in tables.text(SEQUENCES, _result(*rows))
    text = tables.text(SEQUENCES, _result(*rows[:3], {**rows[3], "missing": "why not"}))
    assert "PyTorch" not in text and "No number for torch: why not." in text


def test_equal_is_no_loss_and_a_share_of_the_peak_is_rounded_down():
    (found,) = _cells(SEQUENCES, _result(_row("ours", 5.58), _row("torch", 5.58)))
    assert found["PyTorch / ours"] == "1.00" and found["ours of peak |"] == "89% |"


def test_only_ratios_to_others_are_marked_as_lost():
    cell = {"set": "recompute", "kind": "train"}
    rows = [_row("recompute=False", 4.0, **cell), _row("recompute=True", 2.0, **cell)]
    (found,) = _cells(RECOMPUTE, _result(*rows, bench="recompute"))
    assert found["True |"] == "0.50 |"
    more = [_row("ours", 2**21, unit="bytes"), _row("tf_raw", 2**20, unit="bytes")]
    (found,) = _cells(MEMORY, _result(*more, bench="memory"))
    assert found["ours, MiB"] == "2.00" and found["TensorFlow / ours |"] == "**0.50** |"


def test_variants_and_types_are_compared_with_their_own():
    rows = [
        _row(name, ms * more, variant=variant)
        for variant, more in (("plain", 1), ("masked", 2))
        for name, ms in (("ours_layer", 4.0), ("keras", 4.0 * more))
    ]
    (found,) = _cells(LAYERS, _result(*rows))
    assert found["plain: Keras / ours"] == "1.00" and found["masked: Keras / ours |"] == "2.00 |"
    low = [_row("ours", 2.0, dtype="bfloat16"), _row("torch", 1.0, dtype="bfloat16")]
    (found,) = _cells(BFLOAT16, _result(*low, _row("ours", 3.0), _row("torch", 9.0)))
    assert found["inference: ours, ms"] == "2.00" and found["inference: float32 / ours"] == "1.50"
    assert found["inference: PyTorch / ours |"] == "**0.50** |"


def test_a_mean_is_geometric_and_over_all_shapes_or_none():
    large = {"shape": [1, 1, 1, 1]}
    rows = [_row("ours", 1.0), _row("torch", 8.0), _row("ours", 1.0, **large)]
    assert tables.means(SEQUENCES, _result(*rows)) == {}
    rows.append(_row("torch", 0.5, **large))
    (means,) = tables.means(SEQUENCES, _result(*rows)).values()
    assert list(means.values()) == [(pytest.approx(2.0), 0.5)]
    page = tables.means_markdown(SEQUENCES, _result(*rows), over=("ours",))
    assert "| LSTM inference | 2.00 (**0.50**) |" in page


def _changed(value: object, part: str, *keys: object) -> dict:
    """A quiet result with one thing changed."""
    result = _result(_row("ours", 8.0))
    changed = result[part]
    for key in keys[:-1]:
        changed = changed[key]
    changed[keys[-1]] = value
    return result


def test_a_quiet_machine_is_not_remarked_on():
    quiet = _result(_row("ours", 8.0))
    assert provenance.noise(quiet).quiet and "not" not in provenance.measured(quiet)
    assert provenance.noise(_changed([8.0] * 7 + [16.0], "rows", 0, "rounds")).quiet
    int8 = _result(_row("ours_session_int8", 4.0), _row("ours", 4.0, dtype="bfloat16"))
    assert provenance.noise(int8).quiet  # the peak is of float32


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ((0.51, "machine", "load_at_start"), "quiet in this run: its load was 0.51 at the start"),
        ((0.51, "machine", "load_at_end"), "its load was 0.51 at the end (2 cores)"),
        ((189.0, "peaks", 1, "gflops"), "200 GFLOP/s at the start and 189 at the end"),
        (([8.0, 8.4, 8.6, 9.2], "rows", 0, "rounds"), "of a contender typically differed by"),
        ((4.0, "rows", 0, "median"), "1 float32 time at up to 125% of the GEMM peak"),
        ((None, "machine", "load_at_start"), "known to have been quiet: no load at the start"),
        ((math.nan, "machine", "load_at_end"), "known to have been quiet: no load at the end"),
        (([8.0, 8.0], "rows", 0, "rounds"), "known to have been quiet: no spread between rounds"),
    ],
)
def test_a_machine_that_was_not_quiet_is_told_on_page_and_plot(change, told):
    result = _changed(*change)
    assert not provenance.noise(result).quiet
    assert told in provenance.measured(result)
    assert told in " ".join(plot.caption(result, "").split())


def test_the_commit_and_the_libraries_that_took_part_are_told():
    result = _result(_row("ours", 1.0), _row("torch_call", 2.0))
    result["machine"]["commit"] = "abc123-dirty"
    told = provenance.measured(result)
    assert "commit abc123 with uncommitted changes on cpu" in told
    assert "TensorFlow 2, PyTorch 3; 2000-01-01." in told


SPEED = "<!-- bench:begin speed --><!-- bench:end speed -->"


def _as_if_quiet() -> dict[str, dict]:
    """What the README shows, without what says that its machine was not quiet."""
    some = {name: copy.deepcopy(STORED[name]) for name in ("sequences", "inference")}
    for result in some.values():
        result["peaks"] = [{"gflops": 1e6}]
        result["machine"] |= {"cpu": "Some(R) Chip Processor", "cores": 2}
        result["machine"] |= {"load_at_start": 0.0, "load_at_end": 0.0}
        for row in result["rows"]:
            row["rounds"] = [1.0] * 3
    return some


def test_the_chart_is_never_of_a_machine_that_was_not_quiet():
    some = _as_if_quiet()
    *_, panel = readme.panels(some)
    times: dict[tuple, dict[str, float]] = {}
    for row in some["inference"]["rows"]:
        if (row["set"], row["cell"]) == ("sessions", "lstm"):
            times.setdefault(tuple(row["shape"]), {})[row["contender"]] = row["median"]
    ratios = [
        min(of["onnxruntime_call"], of["onnxruntime_one"]) / of["ours_session"]
        for of in times.values()
    ]
    means = (timing.geometric_mean(ratios), min(ratios))
    assert panel.bars["LSTM vs. ONNX Runtime"] == pytest.approx(means)
    assert panel.processor == "Some Chip, 2 cores" and panel.shapes == len(shapes.INFERENCE)
    for result in some.values():
        result["machine"]["load_at_start"] = 3.0
    assert readme.panels(some) == [] and readme.CHART not in pages.rewritten(SPEED, some)


def test_the_chart_is_told_in_words_and_where_it_was_measured_comes_last():
    some = _as_if_quiet()
    text = pages.rewritten(SPEED, some)
    assert all(f'"bench/results/{name}"' in text for name in (readme.CHART, readme.NARROW))
    assert re.search(r"; Inference with a tf_blockrnn Session: LSTM vs\. ONNX Runtime \d", text)
    assert f"geometric mean over {len(shapes.GRID) + len(shapes.HARD)} shapes" in text
    assert f"over {len(shapes.INFERENCE)} shapes:\n" in text
    assert text.count("\n| LSTM | ") == text.count("\n| GRU | ") == 3
    assert text.rindex("|") < text.index("<picture>") < text.index("Measured at")
    assert all(provenance.measured(result) in text for result in some.values())


@pytest.mark.parametrize(("narrow", "pixels"), [(False, 640), (True, 350)])
def test_each_panel_of_the_chart_names_what_it_shows_legibly(monkeypatch, tmp_path, narrow, pixels):
    """Fonts of at least 12 pixels where the page is so many wide, and no text is cut off."""
    shown = readme.panels(_as_if_quiet())
    assert [panel.title.partition(" ")[0] for panel in shown] == [
        "Training", "Inference", "Inference",
    ]  # fmt: skip
    figures = []
    monkeypatch.setattr(plot, "_save", lambda figure, path, dpi: figures.append(figure))
    plot.chart(shown, tmp_path / "a.png", narrow)
    (figure,) = figures
    figure.canvas.draw()
    for axis, panel in zip(figure.axes, shown, strict=True):
        assert panel.title in axis.get_title() and panel.processor in axis.get_title()
        assert axis.get_xscale() == "log" and "logarithmic" in axis.get_xlabel()
        assert f"geometric mean over {panel.shapes} shapes" in axis.get_xlabel()
        ticks = axis.get_xticklabels() + axis.get_yticklabels()
        for text in (axis.title, axis.xaxis.label, *axis.texts, *ticks):
            assert text.get_fontsize() / 72 / figure.get_figwidth() * pixels >= 12
            box = text.get_window_extent()
            assert text in ticks or 0 <= box.x0 < box.x1 <= figure.bbox.width, text
    plot.plt.close(figure)


def test_pages_are_what_the_results_give_and_tell_their_provenance():
    for page in pages.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert pages.rewritten(text, STORED) == text, f"`python -m bench pages` writes {page} anew"
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert all(provenance.measured(result) in page for result in STORED.values())
    busy = copy.deepcopy(STORED["recompute"])
    busy["machine"]["load_at_start"] = 6.39
    assert "its load was 6.39 at the start" in provenance.measured(busy)


def test_a_section_that_nothing_answers_is_refused():
    page = "<!-- bench:begin {} -->\n<!-- bench:end {} -->"
    some = {name: result for name, result in STORED.items() if name != "derivatives"}
    for name in ("nonsense", "derivatives"):
        with pytest.raises(ValueError, match=f"no question {name} with a result"):
            pages.rewritten(page.format(name, name), some)
    with pytest.raises(ValueError, match="no section"):
        pages.rewritten(page.format("cells", "layers"), STORED)


def test_the_pages_and_plots_are_written_anew(tmp_path, monkeypatch):
    """Plots of at most four panels, and only those of the pages."""
    panels = {}

    def save(figure, path, dpi=110):
        panels[path.name] = sum(axis.get_visible() for axis in figure.axes)
        plot.plt.close(figure)
        return path

    monkeypatch.setattr(plot, "_save", save)
    (tmp_path / "docs").mkdir()
    for page in pages.PAGES:
        (tmp_path / page).write_text((ROOT / page).read_text(encoding="utf-8"), encoding="utf-8")
    old = tmp_path / "bench/results/old.png"
    old.parent.mkdir(parents=True)
    old.touch()
    pages.write(tmp_path, tidy.FOLDER)
    assert not old.exists()
    assert set(panels) == {path.name for path in tidy.FOLDER.glob("*.png")}
    assert all(1 <= number <= 4 for number in panels.values()), panels
    shown = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages.PAGES)
    assert all(re.search(rf'bench/results/{name}[)"]', shown) for name in panels)


def test_a_plot_without_numbers_is_none(tmp_path):
    missing = {**_row("ours", 1.0), "missing": "why"}
    assert plot.question(SEQUENCES, _result(missing), tmp_path / "a.png") is None
    stack = _result(_row("ours_cudnn", 1.0), _row("torch", 2.0))
    assert plot.question(STACKS, stack, tmp_path / "b.png").read_bytes().startswith(PNG)
