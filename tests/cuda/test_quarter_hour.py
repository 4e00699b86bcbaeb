"""tests/gpu/quarter_hour.py without a GPU: what it runs, what a failure costs, when it stops."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import quarter_hour
import run
import runner

_CASES = """
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
import check_program

alive = True

def check(case):
    global alive
    print("case", case)
    if case == "wrong":
        raise AssertionError("2 is not 1")
    if case == "dies":
        os.kill(os.getpid(), 11)
    if case == "hangs":
        time.sleep(600)
    if case == "loses":
        alive = False
        raise RuntimeError("an illegal address")

def cases(names):
    return lambda: check_program.each(names.split(), check)

def dies_once():
    count = check_program.each(["one"], check)
    died = __file__ + ".died"
    if not os.path.exists(died):
        open(died, "w").close()
        os.kill(os.getpid(), 11)
    return count

check_program.run(
    check_program.arguments_of("Cases."),
    {
        "good": cases("one two"),
        "mixed": cases("one wrong dies four loses six wrong eight"),
        "hanging": cases("one hangs three hangs five"),
        "broken": lambda: 1 // 0,
        "between": dies_once,
    },
    lambda: alive,
)
"""


def _python(code: str) -> tuple[str, ...]:
    return quarter_hour.python("-c", code)


def _stage(tmp_path, seconds=100.0) -> quarter_hour.Stage:
    records = tmp_path / "records"
    records.mkdir()
    return quarter_hour.Stage(tmp_path / "out", records, seconds)


@pytest.fixture
def cases(tmp_path, monkeypatch):
    """A stage that has run the checks of a program, and what became of each."""
    monkeypatch.setattr(quarter_hour, "CASE_SECONDS", 2)
    monkeypatch.setattr(runner, "_SECONDS_TO_END", 0.1)
    program = tmp_path / "cases.py"
    program.write_text(_CASES)
    command = quarter_hour.python(program, quarter_hour.HERE, "--library", "none")
    stage = _stage(tmp_path)
    names = ("good", "mixed", "hanging", "broken", "between")
    stage.run([quarter_hour.Program(n, (*command, "--only", n)) for n in names], 2)
    return stage, {outcome.name: outcome for outcome in stage.outcomes}


def test_a_case_costs_itself_and_no_other(cases, tmp_path):
    stage, outcomes = cases
    found = {
        name: [(case["what"], case["error"]) for case in outcome.cases]
        for name, outcome in outcomes.items()
    }
    assert found["good"] == [("one", None), ("two", None)]
    # The second case that ends its program is the last.
    assert found["mixed"] == [
        ("one", None), ("wrong", "AssertionError: 2 is not 1"),
        ("dies", "ended its program, exit code -11"), ("four", None),
        ("loses", "RuntimeError: an illegal address"),
    ]  # fmt: skip
    hung = "ended its program, exit code 1"
    assert found["hanging"] == [("one", None), ("hangs", hung), ("three", None), ("hangs", hung)]
    assert found["broken"] == [
        ("the check itself", "ZeroDivisionError: integer division or modulo by zero")
    ]
    # Its second process passes.
    assert found["between"] == [("one", None)]
    assert {name: outcome.what for name, outcome in outcomes.items()} == {
        "good": "ok", "mixed": "given up", "hanging": "given up", "broken": "failed",
        "between": "failed",
    }  # fmt: skip

    # All of it is in two files and in the summary.
    lines = (tmp_path / "out/results.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == sum(map(len, found.values()))
    log = (tmp_path / "out/log.txt").read_text()
    assert "==== mixed: given up" in log and "2 is not 1" in log and "in check\n" in log
    summary = stage.summary()
    assert "7 cases ok, 6 wrong\nprograms: 1 ok, 2 failed, 2 given up\n" in summary
    assert "FAILURE  mixed, loses: RuntimeError: an illegal address" in summary


def test_other_programs_end_as_their_exit_code_says(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "_SECONDS_TO_END", 0.1)
    stage = _stage(tmp_path)
    codes = {
        "fine": "print('1.5 us')",
        "bad": "print('wrong'); raise SystemExit(1)",
        "absent": "raise SystemExit(77)",
        "slow": "import time; time.sleep(60)",
    }
    stage.run(
        [
            quarter_hour.Program(
                name,
                _python(code),
                2 if name == "slow" else 60,
                recorded=False,
                shown=name == "fine",
            )
            for name, code in codes.items()
        ]
        + [quarter_hour.Program("nothing", ("/no/such/program",), recorded=False)],
        1,
    )
    outcomes = {outcome.name: outcome.what for outcome in stage.outcomes}
    assert outcomes == {
        "fine": "ok", "bad": "failed", "absent": "not run", "slow": "timed out",
        "nothing": "failed",
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "  | 1.5 us\n" in said and "  | wrong\n" in said
    assert "FAILURE  bad, failed: wrong" in stage.summary()


def test_a_stage_ends_in_time(tmp_path):
    stage = _stage(tmp_path, 0.5)
    stage.run([quarter_hour.Program(n, _python("print(1)"), recorded=False) for n in "ab"], 1)
    assert [outcome.what for outcome in stage.outcomes] == ["timed out"] * 2
    assert "2 timed out" in stage.summary()


def _arguments(tmp_path) -> argparse.Namespace:
    (tmp_path / "engine.so").touch()
    return quarter_hour.arguments_of(
        ["checks", "--library", str(tmp_path / "engine.so"), "--out", str(tmp_path / "out")]
    )


def test_every_check_and_sanitizer_is_run(tmp_path, monkeypatch):
    """And compute-sanitizer gets nothing that does not use the device."""
    monkeypatch.setattr(run, "find_tool", lambda name: name)
    monkeypatch.setattr(quarter_hour, "checks_of", lambda name, _: [quarter_hour.Program(name, ())])
    stage, ran = _stage(tmp_path), []
    monkeypatch.setattr(stage, "run", lambda programs, jobs: ran.append((programs, jobs)))
    quarter_hour.checks(stage, _arguments(tmp_path))
    (alone, one), (every, jobs), (sanitized, _) = ran
    assert (one, jobs) == (1, quarter_hour.JOBS)
    assert [program.name for program in alone] == ["versions"]
    assert sorted(program.name for program in every) == sorted(run.CHECKS)
    assert [program.name for program in every[:3]] == list(quarter_hour.FIRST)
    assert {program.command[2] for program in sanitized} == {"memcheck", "racecheck", "synccheck"}
    for program in sanitized:
        assert not any(name in word for word in program.command for name in run.NOT_SANITIZED)


def test_the_benchmark_understands_its_command(tmp_path, monkeypatch):
    """By its own parser, and with cases to measure. Its failure is one of the stage."""
    from bench.gpu import __main__ as bench_gpu

    commands, codes = [], [0, 1]

    def call(command, *_, **__):
        commands.append(command)
        return codes.pop(0), ""

    monkeypatch.setattr(runner, "call", call)
    stage, arguments = _stage(tmp_path), _arguments(tmp_path)
    quarter_hour.speeds(stage, arguments)
    with pytest.raises(SystemExit, match="the benchmark failed"):
        quarter_hour.speeds(stage, arguments)
    found = bench_gpu._arguments(commands[0][3:])
    assert found.preset == "quarter" and found.library == tmp_path / "engine.so"


def test_a_library_of_other_sources_is_refused(tmp_path, monkeypatch):
    arguments = _arguments(tmp_path)
    monkeypatch.setattr(run, "architecture", lambda: 90)
    built = tmp_path / "engine.so.built"
    for gpus, origin, why in ((0, "any", "no GPU"), (1, "other", "not built from these sources")):
        monkeypatch.setattr(run, "count_gpus", lambda gpus=gpus: gpus)
        built.write_text(f"{origin}\nthe report of ptxas")
        with pytest.raises(SystemExit, match=why):
            quarter_hour.prepare(arguments)
    built.write_text(f"{run.origin(run.nvcc_command('nvcc', [90], strict=False))}\nthe report")
    quarter_hour.prepare(arguments)
    assert arguments.library == tmp_path / "engine.so"
