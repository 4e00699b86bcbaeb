"""Packs the built libraries and the Python files of tf_blockrnn/ into a wheel in dist/.

python tools/wheel.py [--output FOLDER] [--libraries FOLDER] [--machine MACHINE] [MORE...]

MORE are folders of libraries for other versions of TensorFlow (tools/build.py --for-tensorflow),
which the wheel contains as well. auditwheel reads from the libraries on which systems they run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = ROOT / "tf_blockrnn"
_SOURCES = [
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "tools/pep517/build_backend.py",
]
# Of a package: what tools/build.py makes, and the rest.
_BUILT = ("*.so", "include", "_build_info.json")
_FACTS = "_build_info.json"


def _has_setuptools() -> bool:
    """Whether setuptools is installed in the version that pyproject.toml requires."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


def _facts(folder: Path) -> dict:
    return json.loads((folder / _FACTS).read_text(encoding="utf-8"))


def version_key(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def add_libraries(more: Path, package: Path) -> None:
    """Adds the libraries in `more`, for another TensorFlow, to those of the package."""
    facts = _facts(package)
    added = _facts(more)["tensorflow"]
    facts["tensorflow"] = sorted({*facts["tensorflow"], *added}, key=version_key)
    for library in more.glob("*.so"):
        if (package / library.name).exists():
            sys.exit(f"{more} is for the same TensorFlow as the other libraries: {library.name}")
        shutil.copy(library, package)
    (package / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def copy_package(libraries: Path, package: Path) -> None:
    """The Python files of tf_blockrnn/, and what was built into `libraries`."""
    unwanted = ("__pycache__", ".*_cache", "*.new")
    shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns(*unwanted, *_BUILT))
    for pattern in _BUILT:
        for built in libraries.glob(pattern):
            (shutil.copytree if built.is_dir() else shutil.copy)(built, package / built.name)


def with_manylinux_tag(wheel: Path) -> Path:
    """Renames a wheel from linux to the oldest manylinux that has all symbols it needs.

    `auditwheel repair` would bring TensorFlow's libraries along, of which a process must have one.
    """
    if not importlib.util.find_spec("auditwheel"):
        print("auditwheel is not installed: PyPI does not take the tag of this wheel.")
        return wheel
    show = ["auditwheel", "show", "--json", "--disable-isa-ext-check", str(wheel)]
    shown = subprocess.run([sys.executable, "-m", *show], check=True, stdout=subprocess.PIPE)
    tag = json.loads(shown.stdout)["sym_tag"]
    tags = ["wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)]
    named = subprocess.run(
        [sys.executable, "-m", *tags], check=True, capture_output=True, text=True
    )
    return wheel.with_name(named.stdout.strip())


def make_wheel(
    output: Path, libraries: Path, more: list[Path], machine: str = platform.machine()
) -> Path:
    """Builds the wheel in a temporary folder, so that no older build can add files to it."""
    if not (libraries / _FACTS).exists():
        sys.exit("Nothing is built yet: run `make wheel`, which builds first.")
    with tempfile.TemporaryDirectory() as folder:
        stage, made = Path(folder, "stage"), Path(folder, "made")
        package = stage / "tf_blockrnn"
        copy_package(libraries, package)
        for name in _SOURCES:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, stage / name)
        for folder_of_more in more:
            add_libraries(folder_of_more, package)
        # Names of local functions are for profilers and debuggers of the checkout.
        strip = "strip" if machine == platform.machine() else f"{machine}-linux-gnu-strip"
        subprocess.run([strip, "--strip-unneeded", *package.glob("*.so")], check=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(made)]
        if _has_setuptools():
            command.append("--no-build-isolation")  # so that pip downloads nothing
        environment = {**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{machine}"}
        subprocess.run([*command, str(stage)], check=True, env=environment)
        (wheel,) = made.glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(with_manylinux_tag(wheel), output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--libraries", type=Path, default=_PACKAGE, help="what tools/build.py made; tf_blockrnn/"
    )
    parser.add_argument(
        "--machine", default=platform.machine(), help="whose libraries they are: aarch64, say"
    )
    parser.add_argument("more", nargs="*", type=Path, help="libraries for another TensorFlow")
    arguments = parser.parse_args()
    wheel = make_wheel(arguments.output, arguments.libraries, arguments.more, arguments.machine)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    # The complete path: the folder may also contain other wheels.
    command = [sys.executable, "-m", "pip", "install", str(wheel)]
    print(f"To install it: {shlex.join(command)}")


if __name__ == "__main__":
    main()
