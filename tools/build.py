"""Builds the libraries for the TensorFlow of this Python, and puts them into tf_blockrnn/.

python tools/build.py [--output FOLDER] [--for-tensorflow]
python tools/build.py --clean | --install-bazel

The CPU engine is built for this machine: its best instruction set, and the plain one that every
processor of its kind runs. TF_BLOCKRNN_ISA=all, or some of them, builds for others' machines; so
does TF_BLOCKRNN_CUDA_ARCHITECTURES for GPUs (docs/environment.md).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bazel_progress
import instruction_sets

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".build"
CACHE = SCRATCH / "bazel-cache"
BAZEL_MISSING = (
    "Bazel is missing. Install bazel-bootstrap (Debian, Ubuntu: apt-get install bazel-bootstrap) "
    "or bazelisk, so that bazel or bazelisk is on PATH."
)


def apt_install(package: str) -> str:
    """Installs a Debian package where that can be done; returns what apt-get reported if not."""
    root = [] if os.geteuid() == 0 else ["sudo"] if sys.stdin.isatty() else ["sudo", "-n"]
    if not shutil.which("apt-get") or (root and not shutil.which("sudo")):
        return ""
    print(f"Installing {package}", flush=True)
    apt_get = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    for command in (["update"], ["install", "-y", package]):
        done = subprocess.run([*apt_get, *command], capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}\n"


def find_bazel() -> str:
    """The Bazel on PATH, or the one of bazel-bootstrap, installed here where that can be done."""
    found = shutil.which("bazel") or shutil.which("bazelisk")
    if found:
        return found
    report = apt_install("bazel-bootstrap")
    found = shutil.which("bazel")
    if not found:
        sys.exit(f"{report}{BAZEL_MISSING}")
    return found


def tensorflow_stamp(package: str) -> str:
    """Changes when another TensorFlow is installed in the same place; costs no import of it."""
    if package:
        return f"{Path(package, 'include').stat().st_mtime_ns}"
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.origin:
        sys.exit(
            f"{sys.executable} has no TensorFlow to build against: install one, or run plain "
            "`make build`."
        )
    include = Path(spec.origin).parent / "include"
    return f"{include.stat().st_mtime_ns}"


def put(source: Path, target: Path) -> None:
    """Replaces a file in one step, so that a process that has the old one mapped keeps it."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    new = target.with_name(f"{target.name}.new")
    shutil.copyfile(source, new)
    os.replace(new, target)


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Waits for its turn: builds share Bazel's output tree, until what they made is copied."""
    SCRATCH.mkdir(exist_ok=True)
    with open(SCRATCH / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_bazel(*command: str, capture: bool = False, **environment: str):
    """Runs Bazel and returns the completed process.

    Builds for the TensorFlow of this Python, or for that in TENSORFLOW_PACKAGE, if it is given.
    With `capture` its standard output is kept; without, what it does is shown in words.
    """
    package = environment.get("TENSORFLOW_PACKAGE", "")
    verb, *arguments = command
    with subprocess.Popen(
        [find_bazel(), verb, *([] if capture else bazel_progress.FLAGS), *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHON_BIN_PATH": sys.executable,
            "TENSORFLOW_PACKAGE": package,
            "TENSORFLOW_STAMP": tensorflow_stamp(package),
            **environment,
        },
        stdout=subprocess.PIPE if capture else None,
        stderr=None if capture else subprocess.PIPE,
        text=True,
        errors="replace",
    ) as bazel:
        if capture:
            output, _ = bazel.communicate()
        else:
            output = None
            bazel_progress.show(bazel.stderr)
    return subprocess.CompletedProcess(bazel.args, bazel.returncode, output)


# Kept over a change of TensorFlow, instruction set or sanitizer and back.
DISK_CACHE = ["--disk_cache", str(CACHE)]


def bazel_build(target: str, *flags: str, **environment: str) -> Path:
    """Builds a target and returns the folder of what Bazel makes."""
    if run_bazel("build", *DISK_CACHE, *flags, target, **environment).returncode:
        sys.exit("The build failed.")
    where = run_bazel("info", *flags, "bazel-bin", capture=True, **environment)
    if where.returncode:
        sys.exit("The build failed.")
    return Path(where.stdout.strip())


def drop_unused(cache: Path, days: int = 30) -> None:
    """Deletes what no build has read or written for so many days; Bazel lets a cache grow for ever.

    An entry that is missed later is made anew.
    """
    earliest = time.time() - days * 24 * 60 * 60
    for entry in cache.rglob("*"):
        used = entry.stat()
        if entry.is_file() and max(used.st_atime, used.st_mtime) < earliest:
            entry.unlink()


def build(output: Path, target: str = "libraries", aarch64: Path | None = None) -> dict:
    """Copies what Bazel makes into `output` and returns the build's facts.

    The target is `libraries` or, for what depends on TensorFlow alone, `libraries_for_tensorflow`;
    `aarch64` is a TensorFlow to cross-compile for, the folder of an unpacked wheel for AArch64.
    """
    sets = instruction_sets.to_build()
    flags = [
        f"--//cc/kernels/cpu:built={','.join(sets)}",
        f"--//cc/kernels/cpu:fallback={instruction_sets.fallback(sets)}",
    ]
    environment: dict[str, str] = {}
    if aarch64:
        flags = ["--config=aarch64"]
        environment = {"TENSORFLOW_PACKAGE": str(aarch64), "TF_BLOCKRNN_CUDA": "0"}
    made = bazel_build(f"//:{target}", *flags, **environment) / target
    kinds = [(output, "*.so")]
    if target == "libraries":
        kinds += [(output / "include", "*.h")]
    if target == "libraries" and not aarch64:
        kinds += [(SCRATCH / "ptxas", "*.ptxas.txt")]
    for folder, pattern in kinds:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(pattern):
            if not (made / old.name).exists():
                old.unlink()
        for new in made.glob(pattern):
            put(new, folder / new.name)
    put(made / "_build_info.json", output / "_build_info.json")
    return json.loads((output / "_build_info.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "tf_blockrnn")
    parser.add_argument(
        "--for-tensorflow",
        action="store_true",
        help="only the libraries that belong to one version of TensorFlow",
    )
    parser.add_argument("--clean", action="store_true", help="remove Bazel's output tree instead")
    parser.add_argument("--install-bazel", action="store_true", help="only find or install Bazel")
    arguments = parser.parse_args()
    if arguments.install_bazel:
        find_bazel()
        return
    if arguments.clean:
        bazel = shutil.which("bazel") or shutil.which("bazelisk")
        if bazel:
            subprocess.run([bazel, "clean", "--expunge"], cwd=ROOT, check=True)
        return
    if not shutil.which(os.environ.get("CC") or "gcc"):
        sys.exit("No C++ compiler: install g++ (Debian, Ubuntu: apt-get install g++).")
    sets = instruction_sets.to_build()
    words = [f"{instruction_sets.known_as(name)} ({name})" for name in sets]
    print(f"Building for the TensorFlow of {sys.executable}", flush=True)
    print(f"and for {' and '.join(words)}; the first build takes some minutes", flush=True)
    with lock():
        target = "libraries_for_tensorflow" if arguments.for_tensorflow else "libraries"
        info = build(arguments.output.resolve(), target)
        drop_unused(CACHE)
    cuda = info["cuda"]
    built_for = f"CUDA {cuda['version']} ({', '.join(cuda['architectures'])})"
    print(
        f"Built for TensorFlow {', '.join(info['tensorflow'])}; "
        + (f"no CUDA: {cuda['missing']}" if cuda["missing"] else built_for)
    )


if __name__ == "__main__":
    main()
