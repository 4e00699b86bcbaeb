"""python tools/copy_tree.py FOLDER: a fresh copy of the sources, for a build away from this one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NOT_SOURCES = shutil.ignore_patterns(
    ".git", ".build", ".venv*", ".*_cache", "__pycache__", "dist", "*.so", "_build_info.json"
)


def main() -> None:
    (folder,) = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, ignore=_NOT_SOURCES)


if __name__ == "__main__":
    main()
