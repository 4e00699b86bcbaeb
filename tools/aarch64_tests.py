"""The engine's tests for AArch64 on another machine: cross-compiled, run by QEMU.

Used by tools/cpp_tests.py. For each instruction set of the engine an emulated processor that has it
runs the C++ tests; then a session opens the best engine of each processor, and the instructions of
the inner loops are counted (tools/inner_loops.py). Ends with the line "N passed, N failed".
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse

import build
import inner_loops
import instruction_sets

# An instruction set, and a processor whose best it is.
CPUS = {
    "armv8-a": "cortex-a72",
    "armv8.2-a-dotprod": "neoverse-n1",
    "armv8.2-a-bf16": "max",
}
_ALL_TESTS = ("all",)
# The types and tests of each set: what differs from armv8-a, whose objects the others have too.
_FULL = {
    "armv8-a": ("f16,bf16,f32,f64", _ALL_TESTS),
    "armv8.2-a-dotprod": ("f32", ("frozen_weights_test",)),
    "armv8.2-a-bf16": ("bf16,f32", _ALL_TESTS),
}
_SHORT = {
    "armv8.2-a-bf16": (
        "f32",
        ("frozen_weights_test", "gru_test", "lstm_test", "simd_test", "simple_rnn_test"),
    ),
}
_TOOLS = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static",
}
# Sets of other processors whose multiply-adds are not rounded in between.
_WITH_MULTIPLY_ADD = ("x86-64-v3", "x86-64-v4")
_QEMU = "/usr/bin/qemu-aarch64-static -L /usr/aarch64-linux-gnu -cpu"
_PROGRESS = ["--show_progress", "--curses=no", "--color=no", "--show_progress_rate_limit=15"]


def missing_tools() -> str:
    """What to do where a tool is missing and cannot be installed, or ""."""
    for tool, package in _TOOLS.items():
        if not shutil.which(tool):
            report = build.apt_install(package)
            if not shutil.which(tool):
                return (
                    f"{report}{tool} is missing. Install {package} (Debian, Ubuntu: apt-get "
                    f"install {package})."
                )
    return ""


def _test_cases(events: Path) -> tuple[int, int]:
    """Test cases passed and failed, of the tests in a file of Bazel's build events."""
    files = {}
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        run = event["id"].get("testResult")
        for output in event.get("testResult", {}).get("testActionOutput", []) if run else []:
            if output["name"] == "test.xml":
                files[run["label"], run["shard"]] = Path(unquote(urlparse(output["uri"]).path))
    passed = failed = 0
    for file in files.values():
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.get("status") != "notrun" and case.find("skipped") is None:
                passed += 1
    return passed, failed


class _Run:
    """Counts what passed and failed."""

    def __init__(self, bazel: list[str]) -> None:
        self.passed = 0
        self.failed = 0
        self._bazel = bazel

    def _add(self, good: bool) -> None:
        self.passed += good
        self.failed += not good

    def _build(self, *flags: str, config: Iterable[str] = ("--config=aarch64",)) -> bool:
        command = ["build", *build.DISK_CACHE, *config, *_PROGRESS, *flags]
        return build.run_bazel(*command, *self._bazel).returncode == 0

    def _made(self, path: str, *config: str) -> Path:
        where = build.run_bazel("info", *config, "bazel-bin", capture=True)
        return Path(where.stdout.strip()) / path

    def engine(self, isa: str, config: str, types: str, tests: tuple[str, ...]) -> None:
        """The C++ tests by one instruction set."""
        print(f"== {isa}, emulated {CPUS[isa]}: {types.replace(',', ', ')}", flush=True)
        events = build.SCRATCH / "aarch64.events.json"
        events.unlink(missing_ok=True)
        done = build.run_bazel(
            "test",
            *build.DISK_CACHE,
            f"--config={config}",
            *_PROGRESS,
            f"--//cc/kernels/cpu:isa={isa}",
            f"--//cc/kernels/cpu:types={types}",
            f"--run_under={_QEMU} {CPUS[isa]}",
            f"--build_event_json_file={events}",
            *self._bazel,
            *(f"//tests/cpp:{test}" for test in tests),
        )
        passed, failed = _test_cases(events) if events.exists() else (0, 0)
        self.passed += passed
        # Something else is wrong, such as the build, where no test failed.
        self.failed += max(failed, 0 if done.returncode == 0 and passed else 1)

    def loops(self) -> None:
        """The instructions of the inner loops of full tiles, as the engine has them."""
        print("== inner loops of armv8-a", flush=True)
        target = "tests/cpp:full_tiles"
        if not self._build("--//cc/kernels/cpu:isa=armv8-a", f"//{target}"):
            self._add(False)
            return
        archives = list(self._made("tests/cpp", "--config=aarch64").glob("libfull_tiles*.lo"))
        self._add(bool(archives) and inner_loops.check(archives, at_least=4))

    def sessions(self) -> None:
        """A session opens the best engine of each processor; int8 has the same bits on all.

        Of this machine, too: its sums are exact, and then there are operations of IEEE 754 alone.
        """
        print("== sessions", flush=True)
        targets = ["//tests/cpp:session_program", "//:session_libraries"]
        int8 = {}
        for isa, cpu in CPUS.items():
            if not self._build(*targets):
                self._add(False)
                return
            lines = self._session([*_QEMU.split(), cpu], "--config=aarch64")
            print(f"{cpu}: {lines[0]}", flush=True)
            self._add(lines[0] == isa)
            int8[isa] = lines[-1]
        if instruction_sets.best().startswith(_WITH_MULTIPLY_ADD):
            if not self._build(*targets, config=[]):
                self._add(False)
                return
            lines = self._session([])
            int8[lines[0]] = lines[-1]
        print(f"int8 has {len(set(int8.values()))} results on {', '.join(int8)}", flush=True)
        self._add(len(set(int8.values())) == 1 and int8["armv8-a"].startswith("int8 "))

    def _session(self, emulator: list[str], *config: str) -> list[str]:
        program = self._made("tests/cpp/session_program", *config)
        libraries = self._made("session_libraries", *config)
        command = [*emulator, str(program), str(libraries)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else [done.stderr.strip()]


def test(length: str, isas: list[str], bazel: list[str]) -> int:
    """Runs the tests for some instruction sets, or for those of the length; returns the status."""
    if missing := missing_tools():
        sys.exit(missing)
    run = _Run(bazel)
    run.loops()
    config, chosen = ("aarch64", _FULL) if length == "full" else ("aarch64-short", _SHORT)
    for isa in isas or chosen:
        run.engine(isa, config, *chosen.get(isa, _FULL[isa]))
    if length == "full":
        run.sessions()
    print(f"{run.passed} passed, {run.failed} failed")
    return 0 if run.passed and not run.failed else 1
