"""Packs the built libraries and the Python files of tf_blockrnn/ into a wheel in dist/.

python tools/wheel.py [--output FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOURCES = ["pyproject.toml", "setup.py", "README.md", "LICENSE"]


def _has_setuptools() -> bool:
    """Whether setuptools is installed in the version that pyproject.toml requires."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


def make_wheel(output: Path) -> Path:
    """Builds the wheel in a temporary folder, so that no older build can add files to it."""
    if not (ROOT / "tf_blockrnn" / "_build_info.json").exists():
        sys.exit("Nothing is built yet: run `make wheel`, which builds first.")
    with tempfile.TemporaryDirectory() as folder:
        stage, made = Path(folder, "stage"), Path(folder, "made")
        shutil.copytree(
            ROOT / "tf_blockrnn",
            stage / "tf_blockrnn",
            ignore=shutil.ignore_patterns("__pycache__", ".*_cache", "*.new"),
        )
        for name in _SOURCES:
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, stage)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(made)]
        if _has_setuptools():
            command.append("--no-build-isolation")  # so that pip downloads nothing
        subprocess.run([*command, str(stage)], check=True)
        (wheel,) = made.glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    wheel = make_wheel(parser.parse_args().output)
    # The complete path: the folder may also contain wheels for other versions of TensorFlow.
    command = [sys.executable, "-m", "pip", "install", str(wheel)]
    print(f"To install it: {shlex.join(command)}")


if __name__ == "__main__":
    main()
