"""Tries a wheel for AArch64 in an emulator: an import, the doctor, ops, XLA and a session.

python tools/aarch64_python.py [--wheel FILE] VERSION...

The wheel is the newest for AArch64 in dist/.

Debian's Python for arm64, unpacked into .build/, runs with TensorFlow's wheels for AArch64 and all
that they need in QEMU (qemu-aarch64-static). The numbers of tools/aarch64_program.py are compared
with those of the tf_blockrnn that is built here. Ends with the line "N passed, N failed".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import aarch64_wheel
import build

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = aarch64_wheel.SCRATCH
PYTHON = aarch64_wheel.PYTHON
PROGRAM = ROOT / "tools" / "aarch64_program.py"
# Has all instruction sets of the engine; its own tests (make test-isa) emulate others, too.
CPU = "max"
# Between engines, float32, of the largest number of a computation. Sums of up to 100 products are
# rounded in another order, and gradients go through all steps.
TOLERANCE = 2e-5
_TOOLS = {"qemu-aarch64-static": "qemu-user-static", "dpkg-deb": "dpkg", "apt-get": "apt"}


def _quiet_run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def debian() -> Path:
    """The root of a Debian for arm64 that has Python and the C++ library, downloaded once.

    From the places that this machine's apt knows, with a state of its own: nothing is installed and
    the machine's packages and lists stay as they are.
    """
    root = SCRATCH / "debian"
    if (root / "stamp").exists():
        return root
    apt = SCRATCH / "apt"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
    }
    command = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    print(f"Downloading Python {PYTHON} for arm64 into {root}", flush=True)
    _quiet_run([*command, "update"])
    wanted = [f"python{PYTHON}", "libstdc++6"]
    _quiet_run([*command, "-y", "--no-install-recommends", "--download-only", "install", *wanted])
    for package in sorted((apt / "archives").glob("*.deb")):
        _quiet_run(["dpkg-deb", "-x", str(package), str(root)])
    (root / "stamp").touch()
    return root


def site_packages(wheel: Path, version: str) -> list[Path]:
    """The wheel, a TensorFlow and what it needs, each unpacked by pip as for AArch64."""
    own = SCRATCH / "wheel"
    shutil.rmtree(own, ignore_errors=True)
    aarch64_wheel.download([str(wheel.resolve())], own)
    pinned = aarch64_wheel.pins(version)
    tensorflow = aarch64_wheel.tensorflow(version).parent
    needed = SCRATCH / f"needed-{version}"
    # The first is there already; TensorFlow imports neither of the others, and not every version of
    # them has a wheel for AArch64.
    del pinned["tensorflow"]
    pinned.pop("tensorboard-data-server", None)
    pinned.pop("tensorflow-io-gcs-filesystem", None)
    aarch64_wheel.download(list(pinned.values()), needed)
    return [own, tensorflow, needed]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess:
    started = time.monotonic()
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command,
        cwd=SCRATCH,  # away from the checkout's own package
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"{Path(command[0]).name} took {time.monotonic() - started:.0f} s", flush=True)
    return done


def emulated(paths: list[Path], *arguments: str) -> subprocess.CompletedProcess:
    """Runs Python for AArch64 with these folders on its path."""
    root = debian()
    emulator = ["qemu-aarch64-static", "-cpu", CPU, "-L", str(root)]
    return run(
        [*emulator, str(root / "usr" / "bin" / f"python{PYTHON}"), *arguments],
        PYTHONHOME=str(root / "usr"),
        PYTHONPATH=os.pathsep.join(map(str, paths)),
    )


def computations(printed: str) -> dict[str, list[float]]:
    lines = (line.split(" ", 1) for line in printed.splitlines() if line.endswith("]"))
    return {name: json.loads(values) for name, values in lines}


def compare(name: str, found: list[float], expected: list[float]) -> bool:
    largest = max(map(abs, expected))
    difference = max(abs(f - e) for f, e in zip(found, expected, strict=True)) / largest
    # A NaN is not smaller.
    good = difference < TOLERANCE
    verdict = "ok" if good else "WRONG"
    print(f"{name}: {verdict}, {len(expected)} numbers, {difference:.1e} from this machine's")
    return good


def try_wheel(wheel: Path, version: str, expected: dict[str, list[float]]) -> list[bool]:
    """Whether each check of the wheel with one TensorFlow is good."""
    print(f"== TensorFlow {version}, emulated processor {CPU}", flush=True)
    paths = site_packages(wheel, version)
    doctor = emulated(paths, "-m", "tf_blockrnn", "doctor")
    print(doctor.stdout + doctor.stderr * bool(doctor.returncode), flush=True)
    computed = emulated(paths, str(PROGRAM))
    if computed.returncode:
        print(computed.stdout[-500:] + computed.stderr[-3000:])
    found = computations(computed.stdout)
    return [
        doctor.returncode == 0,
        *(name in found and compare(name, found[name], expected[name]) for name in expected),
    ]


def missing_tools() -> str:
    """What to do where a tool is missing and cannot be installed, or ""."""
    for tool, package in _TOOLS.items():
        report = "" if shutil.which(tool) else build.apt_install(package)
        if not shutil.which(tool):
            return f"{report}{tool} is missing. Install {package} (apt-get install {package})."
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="the newest for AArch64 in dist/")
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="of TensorFlow: 2.21, say")
    arguments = parser.parse_args()
    if missing := missing_tools():
        sys.exit(missing)
    wheels = sorted((ROOT / "dist").glob("*_aarch64.whl"), key=lambda path: path.stat().st_mtime)
    wheel = arguments.wheel or (wheels[-1] if wheels else None)
    if not wheel:
        sys.exit("There is no wheel for AArch64 in dist/: run `make wheel-aarch64`.")
    print(f"Trying {wheel}", flush=True)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    here = run([sys.executable, str(PROGRAM)], PYTHONPATH=str(ROOT))
    expected = computations(here.stdout)
    if here.returncode or not expected:
        sys.exit(f"{PROGRAM} fails on this machine:\n{here.stderr}")
    checks = [
        check for version in arguments.versions for check in try_wheel(wheel, version, expected)
    ]
    print(f"{sum(checks)} passed, {len(checks) - sum(checks)} failed")
    sys.exit(not all(checks))


if __name__ == "__main__":
    main()
