"""What bench/gpu does without a GPU: cases, rows, and saying that there is none."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.children import ROOT, run_python

from bench import provenance, questions, tables, tidy
from bench.gpu import cases, rows

CASE = cases.Case("lstm", "infer", "float", 8, 50, 1024)


def _rows(ours: float, cudnn: float, cudnn_ran: bool = True, **changes) -> list[rows.Row]:
    case = dataclasses.replace(CASE, **changes)
    samples = {"ours": [[ours, ours]], "cudnn": [[cudnn], [cudnn]]}
    return rows.measured(case, samples, 2, cudnn_ran=cudnn_ran)


def test_all_shapes_are_measured():
    found = list(cases.all_cases())
    assert len(found) == len(set(found)) == 2 * 2 * 3 * 4 * 2 * 5


def test_what_ran_as_pytorchs_own_kernels_is_not_told_as_cudnn():
    (question,) = questions.of("gpu")
    some = [*_rows(2e-3, 1e-3), *_rows(1e-3, 4e-3, cudnn_ran=False, units=64)]
    text = tables.markdown(question, {"rows": [*some, *rows.failed(CASE, "why")]})
    head, _, lost, other = text.splitlines()[:4]
    assert "cuDNN / ours | float: PyTorch's own kernels / ours" in head
    assert "8, 50, 1024 | 2.00 | **0.50** | - |" in lost
    assert "8, 50, 64 | 1.00 | - | 4.00 |" in other
    assert "No number for ours: why." in text


def test_params_of_several_layers_are_in_the_order_of_cudnn():
    pytest.importorskip("torch")
    from bench.gpu import contenders

    case = dataclasses.replace(CASE, units=3, layers=2, directions=2)
    problem = contenders.Problem(case, "cpu")
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


def test_a_result_is_added_to():
    first = {"gpu": {}, "libraries": {}, "persistent": True, "plan": {}}
    now = {**first, "engine": "sources"}
    bad, new = (dataclasses.replace(CASE, units=units) for units in (64, 128))
    before = [*_rows(1.0, 2.5), *rows.failed(bad, "why")]
    assert rows.to_keep({**now, "rows": before}, now) == before
    wanted = rows.without_number([bad, CASE, new], before)
    assert wanted == [new, bad], "what failed is tried last"
    assert rows.without(before, bad) == before[:2]
    for engine in ("others", None):
        assert rows.to_keep({**now, "rows": before}, {**now, "engine": engine}) == []
    assert rows.to_keep({**now, "engine": None, "rows": before}, {**now, "engine": None}) == []
    for name in first:
        with pytest.raises(ValueError, match=name):
            rows.to_keep({**now, "rows": before}, {**now, name: "another"})


def test_cases_are_written_one_by_one_and_resumed(tmp_path, monkeypatch):
    """The loop over cases, with stand-ins for GPU, engine and measurement: a case that fails is a
    row; an error that stays stops it; resumed, it measures what is missing."""
    torch = pytest.importorskip("torch")
    from bench.gpu import __main__ as program
    from bench.gpu import build, contenders

    out = tmp_path / "gpu.json"
    tried, failures, broken = [], {256: "no memory\nand so on"}, {1024}

    def missing() -> dict[int, str]:
        some = [row for row in tidy.read(out)["rows"] if "missing" in row]
        return {row["shape"][2]: row["missing"] for row in some}

    def measure(case, *_):
        assert missing()[case.units] == "begun, not ended"
        tried.append(case.units)
        if case.units in failures:
            raise RuntimeError(failures[case.units])
        return _rows(1.0, 2.0, units=case.units)

    def synchronize():
        if tried[-1] in broken:
            raise RuntimeError("illegal address")

    for module, name, stand_in in (
        (program, "this_gpu", lambda: cases.Gpu("a GPU", (9, 0), 132, 1e9)),
        (program, "measure", measure), (build, "build", lambda *_: ("engine.so", "sources")),
        (contenders, "load", lambda _: None), (contenders, "libraries", lambda _: {"cudnn": 1}),
        (torch.cuda, "synchronize", synchronize), (torch.cuda, "empty_cache", lambda: None),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, stand_in)
    one = ("--cells", "lstm", "--kinds", "infer", "--dtypes", "float", "--batches", "8")
    arguments = program._arguments([*one, "--steps", "50", "--out", str(out), "--resume"])

    result = program.run(arguments, lambda _: None)
    assert tried == [64, 256, 512, 1024] and missing() == {256: "no memory"}
    assert result == tidy.read(out) and result["stopped"] == "illegal address"
    assert "on a GPU; cudnn 1; " in provenance.measured(result)

    broken.clear(), failures.clear(), tried.clear()
    result = program.run(arguments, lambda _: None)
    assert tried == [2048, 256] and "stopped" not in result and not missing()
    assert len(result["rows"]) == 2 * 5 and result["machine"]["load_at_end"] >= 0


def test_it_needs_no_tensorflow_and_reports_that_there_is_no_gpu():
    code = "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    code += "from bench.gpu import build, contenders, __main__ as m; from bench import plot; "
    code += "build.checks.count_gpus = lambda: 0; sys.exit(m.main([]))"
    done = run_python(["-c", code], cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "not measured: no GPU\n"), done.stderr
