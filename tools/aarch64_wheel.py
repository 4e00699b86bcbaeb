"""Makes the wheel for AArch64 on another machine: cross-compiled for TensorFlow's own wheels.

python tools/aarch64_wheel.py VERSION...

For each VERSION, 2.21, say, pip downloads TensorFlow's wheel for AArch64, and the libraries are
built for it. The engines, which know no TensorFlow, are built with the newest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import aarch64_tests
import build
import wheel

_SCRATCH = build.SCRATCH / "aarch64"
_GLIBC = range(17, 37)  # which TensorFlow may need; that of Debian 12 is the newest


def tensorflow(version: str) -> Path:
    """The folder of a TensorFlow for AArch64, downloaded if it is missing."""
    folder = _SCRATCH / f"tensorflow-{version}"
    if not (folder / "tensorflow").exists():
        print(f"Downloading TensorFlow {version} for AArch64 into {folder}", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        command += ["--only-binary=:all:", "--target", str(folder), "--python-version=3.11"]
        command += [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in _GLIBC]
        subprocess.run([*command, f"tensorflow=={version}.*"], check=True)
    return folder / "tensorflow"


def libraries(version: str, target: str) -> Path:
    """Builds a target of tools/build.py and returns the folder of what it made."""
    folder = _SCRATCH / f"{target}-{version}"
    package = tensorflow(version)
    print(f"Cross-compiling for TensorFlow {version} for AArch64", flush=True)
    with build.lock():
        build.build(folder, target, package)
    return folder


def main() -> None:
    if missing := aarch64_tests.missing_tools():
        sys.exit(missing)
    *others, newest = sorted(sys.argv[1:], key=wheel.version_key)
    base = libraries(newest, "libraries")
    more = [libraries(version, "libraries_for_tensorflow") for version in others]
    made = wheel.make_wheel(build.ROOT / "dist", base, more, "aarch64")
    print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB, not tried on this processor")


if __name__ == "__main__":
    main()
