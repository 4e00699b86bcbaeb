"""What bench/gpu does without a GPU: cases, floors, verdicts, and saying that there is none."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
from helpers.children import ROOT

from bench import pages
from bench.gpu import cases, report

GPU = cases.Gpu("a GPU", (9, 0), 132, 1e9, 228 * 1024)
CASE = cases.Case("lstm", "infer", "float", 8, 50, 1024)


def test_all_shapes_are_measured():
    found = list(cases.all_cases())
    assert len(found) == len(set(found)) == 2 * 2 * 3 * 4 * 2 * 5
    assert {case.cell for case in found} == {"lstm", "gru"}
    assert {case.dtype for case in found} == {"float", "tf32", "bfloat16"}


def test_the_floor_of_a_step_is_the_slower_of_reading_and_multiplying():
    # 16 MB of weights fit in shared memory: 132 times 128 bytes a clock.
    one_row = dataclasses.replace(CASE, batch=1)
    assert cases.step_floor(one_row, GPU) == pytest.approx(4 * 1024**2 * 4 / (132 * 128 * 1e9))
    # 64 MB do not: the second-level cache.
    large = dataclasses.replace(one_row, units=2048)
    assert cases.step_floor(large, GPU) == pytest.approx(4 * 2048**2 * 4 / (5120 * 1e9))
    # Many rows: the GEMM itself.
    rows = dataclasses.replace(CASE, batch=128)
    flops = 2 * 128 * 4 * 1024**2
    assert cases.step_floor(rows, GPU) == pytest.approx(flops / (2 * 128 * 132 * 1e9))
    half = dataclasses.replace(rows, dtype="bfloat16")
    assert cases.step_floor(half, GPU) < cases.step_floor(rows, GPU)


def test_the_floor_of_training_has_both_ways_and_all_products():
    train = dataclasses.replace(CASE, kind="train")
    step = 50 * cases.step_floor(CASE, GPU)
    products = cases.floor(CASE, GPU) - step
    assert products > 0
    assert 50 * cases.step_floor(train, GPU) == pytest.approx(2 * step)
    assert cases.floor(train, GPU) == pytest.approx(2 * step + 4 * products)
    two_layers = dataclasses.replace(train, layers=2)
    assert cases.step_floor(two_layers, GPU) == 2 * cases.step_floor(train, GPU)
    assert cases.floor(two_layers, GPU) == pytest.approx(2 * cases.floor(train, GPU))
    both = dataclasses.replace(train, directions=2)
    assert cases.step_floor(both, GPU) == 2 * cases.step_floor(train, GPU)
    assert cases.floor(both, GPU) == pytest.approx(2 * cases.floor(train, GPU))
    # The second layer's input is twice as wide, in three of its four large products.
    deep = dataclasses.replace(both, layers=2)
    assert cases.floor(deep, GPU) == pytest.approx(2 * cases.floor(both, GPU) + 6 * products)


def _row(ours: float, cudnn: float, cudnn_ran: bool = True, **changes):
    case = dataclasses.replace(CASE, **changes)
    samples = {"ours": [[ours, ours]], "cudnn": [[cudnn], [cudnn]]}
    return report.row(case, GPU, samples, 2, cudnn_ran=cudnn_ran)


def test_a_row_has_ratio_and_shares():
    row = _row(1e-3, 2e-3)
    assert row["ratio"] == pytest.approx(2)
    assert row["step_us"] == pytest.approx(20)
    assert row["share_of_floor"] == pytest.approx(cases.floor(CASE, GPU) / 1e-3)


def test_params_of_several_layers_are_in_the_order_of_cudnn():
    """As cc/core/param_layout.h has them: the matrices of all layers, then their biases."""
    pytest.importorskip("torch")
    from bench.gpu import contenders

    problem = contenders.Problem(dataclasses.replace(CASE, units=3, layers=2), "cpu")
    names = {id(value): name for name, value in problem.module.named_parameters()}
    assert [names[id(weight)] for weight in problem.weights()] == [
        "weight_ih_l0", "weight_hh_l0", "weight_ih_l1", "weight_hh_l1",
        "bias_ih_l0", "bias_hh_l0", "bias_ih_l1", "bias_hh_l1",
    ]  # fmt: skip
    assert problem.params().shape == (2 * (2 * 12 * 3 + 2 * 12),)
    assert problem.h.shape == (2, 8, 3)
    both = contenders.Problem(dataclasses.replace(CASE, units=3, layers=2, directions=2), "cpu")
    names = {id(value): name for name, value in both.module.named_parameters()}
    assert [names[id(weight)] for weight in both.weights()[:6]] == [
        "weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse",
        "weight_ih_l1", "weight_hh_l1",
    ]  # fmt: skip
    assert both.h.shape == (4, 8, 3) and both.output_grad.shape == (50, 8, 6)


def test_goals_are_told_reached_or_missed():
    good = [_row(1.0, 2.5), _row(1.0, 1.0, batch=128)]
    assert [line.rsplit(" ", 1)[1] for line in report.goals(good)] == ["reached"] * 3
    slow = report.goals([_row(1.0, 0.8, batch=128)])
    assert "MISSED" in slow[0] and "MISSED" in slow[1] and slow[2].endswith("not measured")
    assert "MISSED" in report.goals([_row(1.0, 1.9)])[2]
    failed = report.goals([*good, report.failed_row(CASE, "the two disagree by 1")])
    assert failed[-1] == "1 cases FAILED"
    assert all(line.endswith("not measured") for line in report.goals([]))


def test_what_ran_as_pytorchs_own_kernels_is_no_goals_and_shown():
    other = _row(1.0, 0.5, cudnn_ran=False, dtype="bfloat16")
    lines = report.goals([_row(1.0, 2.5), other])
    assert [line.rsplit(" ", 1)[1] for line in lines[:3]] == ["reached"] * 3
    assert lines[3] == "1 cases against PyTorch's own kernels, not cuDNN: in no goal"
    result = {"gpu": dataclasses.asdict(GPU), "libraries": {}, "rows": [_row(1.0, 2.5), other]}
    assert report.text(result).count("(not cuDNN)") == 1


def test_whether_cudnn_ran_is_seen_by_its_operations():
    """On the CPU it does not; a stand-in for its operation is seen, unless it only lays out."""
    torch = pytest.importorskip("torch")
    from bench.gpu import build

    x = torch.ones(2, 3, 4, requires_grad=True)
    module = torch.nn.LSTM(4, 5)

    def train():
        output = module(x)[0]
        return torch.autograd.grad(output.sum(), x)

    (grad,), ran = build.cudnn_ran(train)
    assert grad.shape == x.shape and not ran
    library = torch.library.Library("blockrnn_bench_test", "DEF")
    computes = {"_cudnn_rnn": True, "_cudnn_rnn_backward": True, "_cudnn_rnn_flatten_weight": False}
    for name, expected in computes.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x.clone(), "CPU")
        operation = getattr(torch.ops.blockrnn_bench_test, name)
        found, ran = build.cudnn_ran(lambda operation=operation: operation(x.detach()))
        assert ran == expected and found.equal(x)


def test_a_result_is_printed_and_drawn(tmp_path):
    rows = [_row(1.0, 2.5), _row(1.0, 1.0, units=64, kind="train"), report.failed_row(CASE, "why")]
    result = {"gpu": dataclasses.asdict(GPU), "libraries": {"cudnn": 91002}, "rows": rows}
    text = report.text(result)
    assert (
        "cudnn 91002" in text
        and "8, 50, 1024" in text
        and "2.50" in text
        and "why" in text
        and "reached" in text
    )
    assert report.plot(result, tmp_path / "gpu.png").stat().st_size > 1000


def test_pages_have_a_section_of_a_result(tmp_path):
    """It replaces the text for pages without a result."""
    lost = _row(2.0, 1.0, units=64, kind="train")
    result = {
        "machine": {"commit": "abc", "time": "2030-01-02T03:04:05"},
        "gpu": dataclasses.asdict(GPU),
        "libraries": {"cudnn": 91002},
        "rows": [
            _row(1.0, 2.5),
            lost,
            _row(1.0, 0.4, cudnn_ran=False, dtype="bfloat16"),  # counts against no cuDNN
            report.failed_row(CASE, "why"),
        ],
    }
    (tmp_path / "docs").mkdir()
    for page in ("docs/performance.md", "docs/benchmarks.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "<!-- bench:begin gpu -->" in text
        (tmp_path / page).write_text(text, encoding="utf-8")
    (tmp_path / "gpu.json").write_text(json.dumps(result))
    assert [line.split(": ")[1][:3] for line in pages.write(tmp_path, tmp_path)] == ["gpu", "gpu"]
    summary = (tmp_path / "docs/performance.md").read_text(encoding="utf-8")
    rows = (tmp_path / "docs/benchmarks.md").read_text(encoding="utf-8")
    for page in (summary, rows):
        assert f"commit abc on {GPU.name} with cudnn 91002; 2030-01-02." in page
        assert "- slowest case: 0.50× cuDNN, goal 0.9×: MISSED" in page
        assert "- 1 cases FAILED" in page
    assert "1 of 2 rows are slower than cuDNN" in summary and "bench/results/gpu.png" in summary
    (line,) = [line for line in rows.splitlines() if "**0.500**" in line]
    assert line.startswith("| lstm, training, float, 1, 1, 8, 50, 64 | 2000 | 1000 |")
    stopped = report.markdown({**result, "stopped": "an error"})
    assert "- stopped, cases are missing: an error\n" in stopped


def test_a_result_is_added_to():
    first = {"gpu": {}, "libraries": {}, "persistent": True, "plan": {}}
    now = {**first, "engine": "sources"}
    bad, new = (dataclasses.replace(CASE, units=units) for units in (64, 128))
    rows = [_row(1.0, 2.5), report.failed_row(bad, "why")]
    assert report.rows_to_keep({**now, "rows": rows}, now) == rows
    assert report.missing([bad, CASE, new], rows) == [new, bad], "what failed is tried last"
    assert report.without(rows, bad) == rows[:1]
    for engine in ("others", None):
        assert report.rows_to_keep({**now, "rows": rows}, {**now, "engine": engine}) == []
    assert report.rows_to_keep({**now, "engine": None, "rows": rows}, {**now, "engine": None}) == []
    for name in first:
        with pytest.raises(ValueError, match=name):
            report.rows_to_keep({**now, "rows": rows}, {**now, name: "another"})


def test_a_result_that_stopped_says_so():
    result = {"gpu": dataclasses.asdict(GPU), "libraries": {}, "rows": [], "stopped": "an error"}
    assert report.text(result).endswith("STOPPED, cases are missing: an error")


def test_cases_are_written_one_by_one_and_resumed(tmp_path, monkeypatch):
    """The loop over cases, with stand-ins for GPU, engine and measurement: a case that fails is a
    row; an error that stays stops it; resumed, it measures what is missing."""
    torch = pytest.importorskip("torch")
    from bench.gpu import __main__ as program
    from bench.gpu import build, contenders

    out = tmp_path / "gpu.json"
    tried, failures = [], {256: "no memory\nand so on"}

    def rows():
        return json.loads(out.read_text())["rows"] if out.exists() else []

    def measure(case, *_):
        last = rows()[-1]
        assert (last["units"], last["error"]) == (case.units, "begun, not ended")
        assert all("begun" not in r.get("error", "") for r in rows()[:-1])
        tried.append(case.units)
        if case.units in failures:
            raise RuntimeError(failures[case.units])
        return _row(1.0, 2.0, units=case.units)

    def synchronize():
        if tried[-1] in broken:
            raise RuntimeError("illegal address")

    for module, name, stand_in in (
        (program, "this_gpu", lambda: GPU), (program, "measure", measure),
        (build, "build", lambda *_: ("engine.so", "sources")), (contenders, "load", lambda _: None),
        (contenders, "libraries", lambda _: {"cudnn": 1}),
        (torch.cuda, "synchronize", synchronize), (torch.cuda, "empty_cache", lambda: None),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, stand_in)
    one = ("--cells", "lstm", "--kinds", "infer", "--dtypes", "float", "--batches", "8")
    arguments = program._arguments([*one, "--steps", "50", "--out", str(out), "--resume"])

    broken = {1024}
    result = program.run(arguments, lambda _: None)
    assert tried == [64, 256, 512, 1024]
    assert result["stopped"] == "illegal address" and result["rows"] == rows()
    assert rows()[1]["error"] == "no memory"

    broken, tried[:] = set(), []
    failures.clear()
    result = program.run(arguments, lambda _: None)
    assert tried == [2048, 256] and "stopped" not in result
    assert sorted(r["units"] for r in report.measured(rows())) == [64, 256, 512, 1024, 2048]


def test_without_a_gpu_it_says_so_and_stops():
    code = "import sys; from bench.gpu import build, __main__ as m; "
    code += "build.checks.count_gpus = lambda: 0; sys.exit(m.main([]))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "not measured: no GPU\n"), done.stderr
