"""What the programs that run.py starts share: where tests/helpers is, the command line, and running
the checks. They import this module first."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

NOT_RUN = 77  # the exit code of a program that cannot check anything here


def arguments_of(doc: str) -> argparse.Namespace:
    """The command line, the same for all programs, each of which ignores what it does not need."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--library", required=True)
    parser.add_argument(
        "--small", action="store_true", help="few shapes; on a GPU for a sanitizer, which is slow"
    )
    parser.add_argument("--unfilled", action="store_true", help="do not fill scratch with NaN")
    parser.add_argument("--cublas", help="the emulation's; else PyTorch's, or the system's")
    return parser.parse_args()


def not_run(why: str) -> NoReturn:
    print(f"not run: {why}")
    sys.exit(NOT_RUN)


def run(checks: Mapping[str, Callable[[], int]]) -> None:
    """Runs each check, which returns its number of cases. A failure does not stop the others, but
    an error of the device is sticky and fails all that follow."""
    failed = []
    for name, check in checks.items():
        start = time.monotonic()
        try:
            line = f"ok  {name}: {check()} cases"
        except Exception:
            traceback.print_exc(file=sys.stdout)
            failed.append(name)
            line = f"FAILED  {name}"
        print(f"{line}, {time.monotonic() - start:.1f} s", flush=True)
    if failed:
        print(f"failed: {'; '.join(failed)}")
        sys.exit(1)
