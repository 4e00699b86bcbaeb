"""Makes the wheel for AArch64 on another machine: cross-compiled for TensorFlow's own wheels.

python tools/aarch64_wheel.py [--output FOLDER] VERSION...

A VERSION is 2.21, say: pip downloads the TensorFlow for AArch64 that requirements-tf2.21.txt
(requirements.txt for the newest) names, and the libraries are built for it. The engines, which know
no TensorFlow, are built with the newest. tools/aarch64_python.py tries the wheel in an emulator.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import build
import wheel

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".build" / "aarch64"
# The newest glibc of the wheels that pip takes: that of Debian 12, which tools/aarch64_python.py
# runs them on.
_GLIBC = 36
# The emulated Python's version. The libraries do not depend on it.
PYTHON = "3.11"
_COMPILER = ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")


def pins(version: str) -> dict[str, str]:
    """What the requirements of a TensorFlow pin on AArch64: "numpy==2.4.6" for "numpy"."""
    own = ROOT / f"requirements-tf{version}.txt"
    lines = (own if own.exists() else ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines += (ROOT / "requirements-common.txt").read_text(encoding="utf-8")
    found = {}
    for line in lines.splitlines():
        pin = line.partition("#")[0].partition(";")[0].strip()
        if "==" in pin:
            found[pin.partition("==")[0]] = pin
    # The package for x86-64 alone.
    found.pop("tensorflow-cpu", None)
    if not found.get("tensorflow", "").startswith(f"tensorflow=={version}."):
        sys.exit(f"No requirements file pins TensorFlow {version}.")
    return found


def download(pinned: list[str], folder: Path) -> None:
    """Unpacks wheels for AArch64 into a folder, once."""
    stamp = folder / "stamp"
    wanted = "\n".join(sorted(pinned))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Downloading {len(pinned)} packages for AArch64 into {folder}", flush=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(folder)]
    for glibc in range(_GLIBC, 16, -1):
        command += ["--platform", f"manylinux_2_{glibc}_aarch64"]
    command += ["--platform", "manylinux2014_aarch64", "--python-version", PYTHON]
    if subprocess.run([*command, *pinned], check=False).returncode:
        sys.exit("The download failed.")
    stamp.write_text(wanted, encoding="utf-8")


def tensorflow(version: str) -> Path:
    """The folder of a TensorFlow for AArch64, downloaded if it is missing."""
    folder = SCRATCH / f"tensorflow-{version}"
    download([pins(version)["tensorflow"]], folder)
    return folder / "tensorflow"


def libraries(version: str, target: str) -> Path:
    """Builds a target of tools/build.py and returns the folder of what it made."""
    folder = SCRATCH / f"{target}-{version}"
    package = tensorflow(version)
    print(f"Cross-compiling for TensorFlow {version} for AArch64", flush=True)
    with build.lock():
        build.build(folder, target, package)
    return folder


def missing_compiler() -> str:
    """What to do where the cross compiler is missing and cannot be installed, or ""."""
    program, package = _COMPILER
    report = "" if shutil.which(program) else build.apt_install(package)
    if shutil.which(program):
        return ""
    return f"{report}{program} is missing. Install {package} (apt-get install {package})."


def make_wheel(versions: list[str], output: Path) -> Path:
    if missing := missing_compiler():
        sys.exit(missing)
    *others, newest = sorted(versions, key=wheel.version_key)
    base = libraries(newest, "libraries")
    more = [libraries(version, "libraries_for_tensorflow") for version in others]
    return wheel.make_wheel(output, base, more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="of TensorFlow: 2.21, say")
    arguments = parser.parse_args()
    made = make_wheel(arguments.versions, arguments.output)
    print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB, not tried on this processor")


if __name__ == "__main__":
    main()
