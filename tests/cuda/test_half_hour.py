"""tests/gpu/half_hour.py without a GPU: what it runs, what it repeats, and when it stops."""

from __future__ import annotations

import argparse
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import half_hour
import run
import runner


def _python(code: str) -> tuple[str, ...]:
    return half_hour.python("-c", code)


def _arguments(tmp_path, emulate=None):
    (tmp_path / "engine.so").touch()
    return argparse.Namespace(
        library=tmp_path / "engine.so", out=tmp_path, emulate=emulate, cublas="libcublas.so.12"
    )


def _outcomes(state) -> dict[str, str]:
    return {name: found["outcome"] for name, found in state.steps.items()}


def test_a_stage_goes_on_after_failures_and_continues_where_it_stopped(
    tmp_path, capsys, monkeypatch
):
    ran = tmp_path / "ran"

    def mark(name: str) -> str:
        return f"open({str(ran)!r}, 'a').write('{name} '); "

    steps = [
        half_hour.Step("good", 60, _python(mark("good") + "print('fine')")),
        half_hour.Step("bad", 60, _python(mark("bad") + "print('wrong'); raise SystemExit(1)")),
        half_hour.Step("killed", 60, _python("import os; os.kill(os.getpid(), 9)")),
        half_hour.Step("slow", 1, _python(mark("slow") + "import time; time.sleep(60)")),
        half_hour.Step("absent", 60, _python("print('not measured: no GPU'); raise SystemExit(1)")),
        half_hour.Step("nothing", 60, ("/no/such/program",)),
        half_hour.Step("shown", 60, _python("print('1.5 us')"), shown=True),
    ]
    want = {
        "good": "passed", "bad": "failed", "killed": "failed", "slow": "timed out",
        "absent": "not run", "nothing": "failed", "shown": "passed",
    }  # fmt: skip
    out = tmp_path / "out"
    monkeypatch.setattr(runner, "_SECONDS_TO_END", 0.1)
    state = half_hour.State(out, None)
    assert not half_hour.run_stage(steps, state, "origin", 60)
    assert _outcomes(state) == want
    assert (out / "good.txt").read_text() == "fine\n"
    said = capsys.readouterr().out
    assert "  | wrong\n" in said and "timed out: slow\n" in said
    assert "  | 1.5 us\n" in said and "fine" not in said

    # What has passed is not run again, in this folder or with its results in another one.
    assert ran.read_text() == "good bad slow "
    ran.unlink()
    again = half_hour.State(tmp_path / "elsewhere", out)
    new = half_hour.Step("new", 60, _python(mark("new") + "print('fine')"))
    assert not half_hour.run_stage([*steps, new], again, "origin", 60)
    assert _outcomes(again) == {**want, "new": "passed"}
    assert ran.read_text() == "new bad slow ", "what was not reached comes first"
    # With another library all is.
    ran.unlink()
    assert not half_hour.run_stage(steps[:2], again, "other", 60)
    assert ran.read_text() == "good bad "


def test_a_program_that_hangs_says_where(tmp_path):
    code = "import time\ndef waits():\n    time.sleep(60)\nwaits()"
    program = tmp_path / "hangs.py"
    program.write_text(code)
    outcome, output = half_hour.run_step(half_hour.Step("hangs", 0, half_hour.python(program)), 3)
    assert outcome == "timed out" and "line 3 in waits" in output


def test_a_stage_of_which_nothing_can_be_run_has_not_passed(tmp_path):
    absent = half_hour.Step("absent", 60, _python("print('x\\nnot measured: no GPU'); exit(1)"))
    state = half_hour.State(tmp_path, None)
    assert not half_hour.run_stage([absent], state, "origin", 60)
    assert _outcomes(state) == {"absent": "not run"}


def test_a_stage_ends_in_time(tmp_path):
    steps = [half_hour.Step(name, 60, _python("print(1)")) for name in ("first", "second")]
    state = half_hour.State(tmp_path, None)
    assert not half_hour.run_stage(steps, state, "origin", half_hour.LEAST_SECONDS - 1)
    assert _outcomes(state) == {"first": "not reached", "second": "not reached"}
    assert half_hour.run_stage(steps, half_hour.State(tmp_path, None), "origin", 60)


def test_the_stages_have_every_check_and_the_sanitizers_they_need(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find_tool", lambda name: name)
    first, second, third = (stage(_arguments(tmp_path)) for stage in half_hour.STAGES.values())
    plain = [step for step in (*first, *second) if "compute-sanitizer" not in step.command]
    checks = [s.command[1].rpartition("/")[2] for s in plain if len(s.command) > 1]
    assert sorted(c for c in checks if c.startswith("check")) == sorted(run.CHECKS)
    persistent = next(step for step in first if step.name == "check_persistent")
    assert persistent.seconds == 240
    under = [step.name for step in second if "compute-sanitizer" in step.command]
    assert [name for name in under if not name.startswith("memcheck_")] == [
        "racecheck_check_persistent", "racecheck_check_stack_order",
        "synccheck_check_persistent", "synccheck_check_stack_order",
    ]  # fmt: skip
    assert len(under) - 4 == len(set(run.CHECKS) - set(run.NOT_SANITIZED))
    assert [step.name for step in third] == list(half_hour.BENCH[1:])
    names = [step.name for step in (*first, *second, *third)]
    assert len(set(names)) == len(names)
    assert {name for name in names if name.startswith("bench")} == set(half_hour.BENCH)


def test_every_benchmark_command_is_understood(tmp_path):
    """By bench.gpu's own parser, and with cases to measure."""
    from bench.gpu import __main__ as bench_gpu
    from bench.gpu import cases

    steps = [*half_hour.first(_arguments(tmp_path)), *half_hour.third(_arguments(tmp_path))]
    commands = [step.command[3:] for step in steps if "bench.gpu" in step.command]
    assert len(commands) == len(half_hour.BENCH)
    for command in commands:
        a = bench_gpu._arguments(command)
        assert a.resume and a.library == tmp_path / "engine.so"
        wanted = cases.all_cases(a.cells, a.kinds, a.dtypes, a.batches, a.steps, a.units, a.layers)
        assert len(list(wanted)) > 0


def test_a_library_of_other_sources_is_refused(tmp_path, monkeypatch):
    arguments = _arguments(tmp_path)
    monkeypatch.setattr(run, "architecture", lambda: 90)
    built = tmp_path / "engine.so.built"
    for gpus, origin, why in ((0, "any", "no GPU"), (1, "other", "not built from these sources")):
        monkeypatch.setattr(run, "count_gpus", lambda gpus=gpus: gpus)
        built.write_text(f"{origin}\nthe report of ptxas")
        with pytest.raises(SystemExit, match=why):
            half_hour.prepare(arguments)
    now = run.origin(run.nvcc_command("nvcc", [90], strict=False))
    built.write_text(f"{now}\nthe report of ptxas")
    assert half_hour.prepare(arguments) == now
