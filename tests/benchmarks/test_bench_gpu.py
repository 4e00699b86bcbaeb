"""What bench/gpu does without a GPU: cases, rows, and saying that there is none."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import signal
import sys
import time

import pytest
from helpers.children import ROOT, run_python

from bench import process, provenance, questions, tables, tidy, timing
from bench.gpu import __main__ as program
from bench.gpu import build, cases, report, worker
from bench.peers.worker import guarded

CASE = cases.Case("lstm", "infer", "float", 8, 50, 1024)
GPU = cases.Gpu("a GPU", (9, 0), 100, 1e9)


def _rows(disagreement: float = 1e-6, *, of: cases.Case = CASE, **seconds) -> list[tidy.Row]:
    some = [
        {**of.fields(), "contender": name, **timing.summary([[one, one], [one]])}
        for name, one in seconds.items()
    ]
    return report.checked(some, disagreement, most=1e-4, kernels=2)


def _case(**changes) -> cases.Case:
    return dataclasses.replace(CASE, **changes)


def _wanted(*words: str) -> list[cases.Case]:
    return program._wanted(program._arguments(words))


def test_all_shapes_are_measured_but_those_that_others_replace():
    assert len(set(_wanted())) == 2 * 2 * 4 * 4 * 2 * 5
    some = _wanted("--cells", "gru", "--batches", "3", "5", "--directions", "2")
    assert len(some) == 2 * 2 * 4 * 2 * 5
    assert {(case.cell, case.directions) for case in some} == {("gru", 2)}


def test_the_quarter_has_each_step_by_step_case_persistent_too():
    found = _wanted("--preset", "quarter")
    assert len(found) == len(set(found)) == len(cases.QUARTER)
    slow = [case for case in found if case.path]
    assert len(slow) == 3
    assert {dataclasses.replace(case, path="") for case in slow} < set(found)
    assert {case.dtype for case in found} == set(cases.GRID["dtypes"])
    every = _wanted("--preset", "quarter", "--path", cases.STEP_BY_STEP)
    assert len(every) == len(found) - 3 and all(case.path for case in every)


def test_multiply_adds_are_those_of_the_gemms():
    one = _case(batch=2, steps=5, units=7)
    assert one.multiply_adds == 5 * 2 * (7 + 7) * 4 * 7
    train = dataclasses.replace(one, cell="gru", kind="train", layers=2, directions=2)
    assert train.multiply_adds == 3 * 5 * 2 * 2 * ((7 + 7) + (14 + 7)) * 3 * 7
    # Of half 2,048 in a clock, on each of 100 multiprocessors.
    half = dataclasses.replace(one, dtype="half")
    assert GPU.shortest_seconds(half) == one.multiply_adds / (2048 * 100 * 1e9)
    assert dataclasses.replace(GPU, capability=(7, 5)).shortest_seconds(half) is None


def test_what_ran_as_pytorchs_own_kernels_is_not_told_as_cudnn():
    (question,) = questions.of("gpu")
    slow = _rows(ours=4e-3, cudnn=1e-3, of=_case(path=cases.STEP_BY_STEP))
    other = _rows(ours=1e-3, pytorch=4e-3, of=_case(units=64, dtype="half", layers=2))
    some = [*_rows(ours=2e-3, cudnn=1e-3), *slow, *other, *report.failed(CASE, "why")]
    text = tables.markdown(question, {"rows": some})
    head, _, lost, other = text.splitlines()[:4]
    assert "cuDNN / ours | PyTorch's own kernels / ours | step by step: ours, µs" in head
    assert lost.startswith("| LSTM inference float 8, 50, 1024 | 2000 | 1000 | **0.50** | - | ")
    assert lost.endswith("| 4000 | 1000 | **0.25** |")
    assert other.startswith("| LSTM inference half 2 layers 8, 50, 64 | 1000 | - | - | 4.00 | ")
    assert "No number for ours: why." in text


def test_times_of_wrong_results_do_not_count():
    (question,) = questions.of("gpu")
    for error in (2e-4, math.nan):
        wrong = _rows(error, ours=1e-3, cudnn=2e-3)
        assert tables.markdown(question, {"rows": wrong}).startswith("| B, T, H | cuDNN, µs |\n")
        assert report.line(CASE, wrong, GPU).endswith(f"the two disagree by {error:.2g}")
        assert report.summary([wrong], 1) == "0 of 1 cases have a ratio"


def test_a_case_is_told_in_a_line_and_their_mean_in_the_summary():
    # 840 million multiply-adds, 12,800 in a nanosecond.
    fast, slow = _rows(ours=1e-3, cudnn=4e-3), _rows(ours=2e-3, cudnn=1e-3)
    assert report.line(CASE, fast, GPU) == (
        "LSTM inference float 8, 50, 1024: ours 1000.0 µs, cudnn 4000.0 µs, ratio 4.00,"
        " 20.00 µs a step, 2 persistent kernels, disagreement 1.0e-06,"
        " 26% of the GPU's multiply-adds"
    )
    step = _rows(ours=2e-3, cudnn=1e-3, of=_case(path=cases.STEP_BY_STEP))
    told = "3 of 4 cases have a ratio, cuDNN / ours: mean 1.41, 0.50 to 4.00"
    assert report.summary([fast, slow, step], 4) == told


def test_params_of_several_layers_are_in_the_order_of_cudnn():
    pytest.importorskip("torch")
    from bench.gpu import contenders

    problem = contenders.Problem(_case(units=3, layers=2, directions=2), "cpu")
    names = {id(value): name for name, value in problem.module.named_parameters()}
    ends = [
        f"{side}_l{n}{way}" for n in (0, 1) for way in ("", "_reverse") for side in ("ih", "hh")
    ]
    wanted = [f"{kind}_{end}" for kind in ("weight", "bias") for end in ends]
    assert [names[id(weight)] for weight in problem.weights()] == wanted
    assert problem.params().numel() == sum(weight.numel() for weight in problem.weights())
    assert problem.h.shape == (4, 8, 3) and problem.output_grad.shape == (50, 8, 6)


def test_whether_cudnn_ran_is_seen_by_its_operations():
    """On the CPU it does not; a stand-in for its operation is seen, unless it only lays out."""
    torch = pytest.importorskip("torch")
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


LIBRARIES = {"driver": "580", "CUDA": "13.0", "torch": "2", "cudnn": 1}


def _serve(connection, path, plan):
    """Stands in for the process that measures: some cases end it, or never end."""
    if pathlib.Path(path).exists():
        sys.exit(3)
    connection.send({"gpu": dataclasses.asdict(GPU), "libraries": LIBRARIES})
    while True:
        case = connection.recv()
        if case.batch == 32:
            pathlib.Path(path).touch()  # no process starts from now on
        connection.send(guarded(_measure, case))


def _measure(case):
    if case.units == 64:
        os.kill(os.getpid(), signal.SIGKILL)
    if case.units == 256:
        time.sleep(60)
    if case.units == 512:
        raise RuntimeError("illegal address\nand so on")
    return _rows(ours=1.0, cudnn=2.0, of=case)


ENDS = {
    64: "killed by signal 9", 256: "no answer in 1 s", 512: "RuntimeError: illegal address",
}  # fmt: skip


@pytest.fixture
def measures(tmp_path, monkeypatch):
    """Runs the program with stand-ins for engine and measurement: exit code, and result."""
    monkeypatch.setattr(build, "missing", lambda _: None)
    monkeypatch.setattr(build, "build", lambda *_: (tmp_path / "broken", "sources"))
    monkeypatch.setattr(worker, "serve", _serve)
    monkeypatch.setattr(process, "_SECONDS_TO_END", 0.2)
    out = tmp_path / "gpu.json"
    few = ("--cells", "lstm", "--kinds", "infer", "--dtypes", "float", "--steps", "50")

    def run(*batches: str):
        words = [*few, "--batches", *batches, "--limit", "1", "--out", str(out)]
        code = program.main(words)
        return code, tidy.read(out) if out.exists() else None

    return run


def test_a_case_that_ends_its_process_costs_no_other(measures, capsys, tmp_path):
    code, result = measures("8")
    missing = {row["shape"][2]: row["missing"] for row in result["rows"] if "missing" in row}
    assert code == 1 and missing == ENDS
    assert [row["shape"][2] for row in result["rows"]] == [64, 256, 512, 1024, 1024, 2048, 2048]
    assert "on a GPU; driver 580, CUDA 13.0, torch 2, cudnn 1; " in provenance.measured(result)
    said = capsys.readouterr().out
    assert "1/5 LSTM inference float 8, 50, 64: MISSING: killed by signal 9\n" in said
    assert "\n2 of 5 cases have a ratio, cuDNN / ours: mean 2.00, 2.00 to 2.00\n" in said
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


def test_it_stops_where_no_process_starts(measures, capsys):
    code, result = measures("32")
    assert code == 1 and result["stopped"] == "no process starts any more: exit code 3"
    assert [row["missing"] for row in result["rows"]] == [ENDS[64]]
    assert measures("8")[0] == 1
    assert capsys.readouterr().out.endswith("\nnot measured: exit code 3\n")


def test_it_needs_no_tensorflow_and_reports_that_there_is_no_gpu():
    code = "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    code += "from bench.gpu import build, contenders, __main__ as m; "
    code += "build.checks.count_gpus = lambda: 0; sys.exit(m.main([]))"
    done = run_python(["-c", code], cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "not measured: no GPU\n"), done.stderr
