"""All benches in turn: what is left out, when a run ends, and what it reports."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import time

import pytest

from bench import machine, record, tidy, timing
from bench import run as command


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """As in a tree without changes."""
    stamp = machine.stamp
    monkeypatch.setattr(machine, "stamp", lambda threads: stamp(threads) | {"commit": "abc"})


PLAN = timing.Plan(rounds=3, seconds=0.1)


def _result(**changes: object) -> dict:
    return {
        "schema": 2, "bench": "cells", "machine": machine.stamp(1) | {"load_at_end": 9.0},
        "plan": dataclasses.asdict(PLAN), "interrupted": False, "rows": [], **changes,
    }  # fmt: skip


def _jobs(folder, *benches: str) -> list[record.Job]:
    return [record.Job(bench, (), folder / f"{bench}.json", 90.0) for bench in benches]


@pytest.fixture
def measured(monkeypatch):
    """Stands in for the processes: the benches run so far; "fails" and "interrupts" do."""
    some = []

    def measure(job: record.Job) -> int:
        some.append(job.bench)
        if job.bench == "interrupts":
            raise KeyboardInterrupt
        tidy.write(_result(), job.path)
        return 3 * (job.bench == "fails")

    monkeypatch.setattr(record, "_measure", measure)
    return some


def test_each_bench_runs_unless_it_is_recorded_and_says_how_long_all_takes(
    tmp_path, measured, capsys
):
    jobs = _jobs(tmp_path, "a", "fails", "b")
    tidy.write(_result(), jobs[2].path)
    came = record.run(jobs, ["b"], lambda: "")
    assert measured == ["a", "fails"]
    told = capsys.readouterr().err
    assert "2 of 3 benches, about 3 min\n[1/2] a: about 2 min; 0 min spent, about 3 min" in told
    lines = record.report(jobs, came)
    assert lines[0].startswith("a: measured. The machine was not quiet in this run: its load was")
    assert lines[1] == "fails: failed, exit code 3."
    assert lines[2].startswith("b: recorded before, at this commit. The machine was not quiet")


@pytest.mark.parametrize(("second", "reason"), [("b", "not measured: busy"), ("interrupts", "not")])
def test_a_run_ends_where_the_machine_is_busy_or_it_is_interrupted(
    tmp_path, measured, second, reason
):
    jobs = _jobs(tmp_path, "a", second, "c")
    busy = iter(["", "busy" * (second == "b")])
    came = record.run(jobs, [], lambda: next(busy))
    assert "c" not in measured and came["c"] == "not measured"
    assert came["a"] == "measured" and came[second].startswith(reason)


def test_a_result_counts_as_recorded_at_this_commit_and_plan_alone(tmp_path, monkeypatch):
    path = tmp_path / "cells.json"
    assert not record.is_recorded(path, PLAN, 1)
    tidy.write(_result(), path)
    assert record.is_recorded(path, PLAN, 1)
    assert not record.is_recorded(path, timing.Plan(), 1)
    assert not record.is_recorded(path, PLAN, 2)
    without = {key: value for key, value in _result(seconds=7).items() if key != "plan"}
    tidy.write(without, path)
    assert not record.is_recorded(path, PLAN, 1)
    assert record.estimate("cells", 10, PLAN, path) > 7
    other = machine.stamp(1)
    for changes in ({"interrupted": True}, {"machine": other | {"commit": "another"}}):
        tidy.write(_result(**changes), path)
        assert not record.is_recorded(path, PLAN, 1)
    # Results of a tree with changes do not tell which.
    for commit in ("abc-dirty", None):
        changed = other | {"commit": commit}
        monkeypatch.setattr(machine, "stamp", lambda threads, changed=changed: changed)
        tidy.write(_result(machine=changed), path)
        assert not record.is_recorded(path, PLAN, 1)


def test_the_time_of_a_bench_is_that_of_its_last_run_with_the_same_plan(tmp_path):
    path = tmp_path / "cells.json"
    guess = record.estimate("cells", 10, PLAN, path)
    assert guess > 10 * PLAN.seconds
    tidy.write(_result(seconds=77), path)
    assert record.estimate("cells", 10, PLAN, path) == 77
    assert record.estimate("cells", 10, timing.Plan(), path) > guess


def test_the_command_runs_all_but_what_is_recorded_or_asked_for_again(
    tmp_path, measured, monkeypatch, capsys
):
    tidy.write(_result(), tmp_path / "cells.json")
    tidy.write(_result(), tmp_path / "jit.json")
    options = ["all", "--rounds=3", "--seconds=0.1", "--threads=1", f"--out={tmp_path}"]
    monkeypatch.setattr(machine, "wait_until_quiet", lambda seconds: f"busy for {seconds:g} s")
    assert command.main([*options, "--wait=7"]) == 1 and measured == []
    assert "sequences: not measured: busy for 7 s." in capsys.readouterr().out
    assert command.main([*options, "--even-if-busy", "--again", "jit"]) == 0
    assert measured == [bench for bench in command._BENCHES if bench != "cells"]
    measured.clear()
    assert command.main([*options, "--even-if-busy"]) == 0 and measured == []
    assert command.main([*options, "--even-if-busy", "--again"]) == 0
    assert measured == list(command._BENCHES)


def test_an_interrupt_reaches_the_bench_once_which_then_writes_its_rows(tmp_path, monkeypatch):
    program = tmp_path / "bench/__main__.py"
    program.parent.mkdir()
    program.write_text(
        "import pathlib, signal, time\n"
        # What runs in the background of a shell ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n  pathlib.Path('began').touch(); time.sleep(60)\n"
        "except KeyboardInterrupt:\n  pathlib.Path('rows').touch()\n"
    )
    monkeypatch.chdir(tmp_path)
    (job,) = _jobs(tmp_path, "cells")

    class Interrupted(subprocess.Popen):
        waits = 0

        def wait(self, timeout=None):
            self.waits += 1
            while self.waits == 1 and self.poll() is None and not (tmp_path / "began").exists():
                time.sleep(0.01)
            if self.waits == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        record._measure(job)
    assert (tmp_path / "rows").exists()


def test_the_load_is_the_number_of_processors_that_are_busy_now(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(machine.time, "sleep", lambda _: None)
    stat = tmp_path / "stat"
    tick = os.sysconf("SC_CLK_TCK")
    stat.write_text(f"cpu {70 * tick} 0 {15 * tick} {170 * tick} {15 * tick} 0 0 {30 * tick} 0 0\n")
    assert machine._processor_seconds(stat) == (115.0, 300.0)
    seconds = iter([(15.0, 100.0), (65.0, 300.0)])
    monkeypatch.setattr(machine, "_processor_seconds", lambda: next(seconds))
    assert machine.load() == 1.0  # a quarter of the time of four


def test_the_load_is_not_a_number_where_it_is_not_known(tmp_path, monkeypatch):
    read = machine._processor_seconds
    monkeypatch.setattr(machine, "_processor_seconds", lambda: read(tmp_path / "none"))
    assert math.isnan(machine.load(0))


def test_a_busy_machine_says_what_keeps_it_busy(monkeypatch):
    assert any(number == os.getpid() for number, _ in machine._cpu_seconds())
    samples = iter([{(1, "a"): 0.0, (2, "b"): 5.0}, {(1, "a"): 0.5, (2, "b"): 5.0, (3, "c"): 1.0}])
    monkeypatch.setattr(machine, "_cpu_seconds", lambda: next(samples))
    monkeypatch.setattr(machine, "load", lambda: 0.51)
    monkeypatch.setattr(machine.time, "sleep", lambda _: None)
    assert machine.wait_until_quiet(0) == ("the load is 0.51, above 0.5; busy: 50% a (process 1)")
    monkeypatch.setattr(machine, "load", lambda: 0.5)
    assert machine.wait_until_quiet(0) == ""


def test_results_and_pages_are_no_change_of_the_commit(tmp_path):
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    files = [tmp_path / name for name in ("bench/results/a.json", "docs/a.md", "a.py")]
    git("init")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    git("add", ".")
    git("commit", "-m", "a")
    clean = machine.commit(tmp_path)
    for path, is_change in zip(files, (False, False, True), strict=True):
        path.write_text("2")
        assert machine.commit(tmp_path) == clean + "-dirty" * is_change
