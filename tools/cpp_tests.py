"""Builds and runs the C++ tests of the CPU engine, without TensorFlow's code.

python tools/cpp_tests.py release|dev|asan|tsan [--length short|full] [--isa native|all|NAME]
    [--types "f32 bf16"] [--family gru|lstm|layer_norm|simple_rnn|rnn_stack] [-- BAZEL_ARGUMENT...]
python tools/cpp_tests.py aarch64 [--length short|full] [--isa all|NAME] [-- BAZEL_ARGUMENT...]
python tools/cpp_tests.py fuzz [--seconds N] [--family gru|lstm|layer_norm|simple_rnn|rnn_stack]

release is the engine as it is shipped, and also runs the tests of cc/xla, which use TensorFlow. dev
compiles fastest. asan is AddressSanitizer with UndefinedBehaviorSanitizer; in short it takes float
and bfloat16 alone, tsan float alone. aarch64 compiles with g++-aarch64-linux-gnu and runs in QEMU's
emulation of a processor for each instruction set (tools/aarch64_tests.py). fuzz is libFuzzer with
AddressSanitizer and UndefinedBehaviorSanitizer and needs clang; N seconds go to each family, whose
inputs are in .build/corpus/FAMILY. The options of each are in .bazelrc and cc/copts.bzl.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import aarch64_tests
import build
import instruction_sets

GOOGLETEST_MISSING = (
    "GoogleTest's source is missing. Install libgtest-dev (Debian, Ubuntu: apt-get install "
    "libgtest-dev), or set GOOGLETEST_SOURCE to a checkout of GoogleTest."
)

FAMILIES = ["gru", "lstm", "layer_norm", "simple_rnn", "rnn_stack"]
TYPES = ["f16", "bf16", "f32", "f64"]


def require_googletest() -> None:
    """Ends the program with what to do where its source is missing and cannot be installed."""

    def present() -> bool:
        source = Path(os.environ.get("GOOGLETEST_SOURCE") or "/usr/src/googletest")
        return (source / "googletest" / "src" / "gtest-all.cc").exists()

    if not present():
        report = "" if "GOOGLETEST_SOURCE" in os.environ else build.apt_install("libgtest-dev")
        if not present():
            sys.exit(f"{report}{GOOGLETEST_MISSING}")


def find_clang() -> str:
    """The clang on PATH, or the one of the package clang, installed here where that can be done."""

    def present() -> str | None:
        names = ["clang", *(f"clang-{version}" for version in range(20, 10, -1))]
        return next(filter(None, map(shutil.which, names)), None)

    found = present()
    if found:
        return found
    report = build.apt_install("clang")
    return present() or sys.exit(
        f"{report}The fuzzer needs clang on PATH (Debian, Ubuntu: apt-get install clang)."
    )


def engine_flags(isa: str, types: list[str]) -> list[str]:
    flags = [f"--//cc/kernels/cpu:isa={isa}"]
    if types:
        # Tests that show that a wrong number is seen take float.
        chosen = [name for name in TYPES if name in types or name == "f32"]
        flags.append(f"--//cc/kernels/cpu:types={','.join(chosen)}")
    return flags


def test(arguments: argparse.Namespace) -> int:
    """Runs the tests for each instruction set; returns the worst exit status."""
    supported = instruction_sets.supported()
    full = arguments.length == "full"
    # Of release the set that the build is for, whose objects are there; else the one with most code
    # of its own.
    native = instruction_sets.best() if arguments.mode == "release" else supported[-1]
    isas = {
        "native": [native],
        # And in full as on processors that the engine has no set for.
        "all": list(dict.fromkeys([*reversed(supported), *(["generic"] * full)])),
    }.get(arguments.isa)
    flags = ["--config=full"] if full else []
    if arguments.mode in ("asan", "tsan") and not full:
        flags.append(f"--config={arguments.mode}-short")
    elif arguments.mode != "release":
        flags.append(f"--config={arguments.mode}")
    targets = [f"//tests/cpp:{arguments.family}_test" if arguments.family else "//tests/cpp:all"]
    if arguments.mode == "release" and not arguments.family:
        targets.append("//tests/cpp/xla:all")
    worst = 0
    for isa in isas or [arguments.isa]:
        print(f"== {arguments.mode} {arguments.length} {isa}", flush=True)
        done = build.run_bazel(
            "test",
            *build.DISK_CACHE,
            *flags,
            *engine_flags(isa, arguments.types),
            *arguments.bazel,
            *targets,
        )
        worst = max(worst, done.returncode)
    return worst


def fuzz(families: list[str], seconds: int) -> int:
    """Searches each family for so many seconds; returns the worst exit status.

    What reaches new code stays in .build/corpus/<family>, and an input that fails in
    .build/findings/<family>. Where there is no corpus, the cases of the tests are the first ones.
    """
    flags = ["--config=fuzz", f"--repo_env=CC={find_clang()}"]
    flags += engine_flags(instruction_sets.supported()[-1], [])
    targets = [f"//tests/cpp:{family}_fuzzer" for family in families]
    done = build.run_bazel("build", *build.DISK_CACHE, *flags, *targets)
    if done.returncode:
        return done.returncode
    where = build.run_bazel("info", *flags, "bazel-bin", capture=True)
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}
    worst = 0
    for family in families:
        print(f"== fuzz {family}", flush=True)
        corpus, findings = (build.SCRATCH / name / family for name in ("corpus", "findings"))
        for folder in (corpus, findings):
            folder.mkdir(parents=True, exist_ok=True)
        fuzzer = Path(where.stdout.strip()) / "tests" / "cpp" / f"{family}_fuzzer"
        command = [fuzzer, "-max_len=32", "-timeout=120", f"-artifact_prefix={findings}/"]
        if not any(corpus.iterdir()):
            with tempfile.TemporaryDirectory() as seeds:
                subprocess.run([fuzzer], env={**environment, "BLOCKRNN_SEEDS": seeds}, check=True)
                subprocess.run([*command, "-merge=1", corpus, seeds], env=environment, check=True)
        command += [f"-max_total_time={seconds}", "-print_final_stats=1", corpus]
        done = subprocess.run(command, env=environment, check=False)
        worst = max(worst, abs(done.returncode))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["release", "dev", "asan", "tsan", "aarch64", "fuzz"])
    parser.add_argument("--length", choices=["short", "full"], default="short")
    parser.add_argument("--isa", default="native")
    parser.add_argument("--types", type=str.split, default=[])
    parser.add_argument("--family", choices=["", *FAMILIES], default="")
    parser.add_argument("--seconds", type=int, default=600)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    arguments.bazel = sys.argv[end + 1 :]
    unknown = set(arguments.types) - set(TYPES)
    if unknown:
        parser.error(f"unknown types {', '.join(sorted(unknown))}; there are {', '.join(TYPES)}")
    require_googletest()
    if arguments.mode == "fuzz":
        sys.exit(fuzz([arguments.family] if arguments.family else FAMILIES, arguments.seconds))
    if arguments.mode == "aarch64" and platform.machine() == "aarch64":
        # Nothing to emulate.
        arguments.mode, arguments.isa = "release", "all"
    if arguments.mode == "aarch64":
        isas = [] if arguments.isa in ("native", "all") else [arguments.isa]
        sys.exit(aarch64_tests.test(arguments.length, isas, arguments.bazel))
    sys.exit(test(arguments))


if __name__ == "__main__":
    main()
