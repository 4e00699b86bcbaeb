"""What the programs that run.py starts have in common: arguments, and checks one by one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping


def arguments_of(doc: str) -> argparse.Namespace:
    """The command line, the same for all; what a program has no use for it leaves alone."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--library", required=True)
    parser.add_argument("--emulated", action="store_true", help="the library is the emulation")
    parser.add_argument(
        "--small", action="store_true", help="few shapes; on a GPU for a sanitizer, which is slow"
    )
    parser.add_argument("--cublas", help="the emulation's; else PyTorch's, or the system's")
    return parser.parse_args()


def run(checks: Mapping[str, Callable[[], int]]) -> None:
    """Each check by its name; it says how many cases it had."""
    for name, check in checks.items():
        start = time.monotonic()
        count = check()
        print(f"ok  {name}: {count} cases, {time.monotonic() - start:.1f} s", flush=True)
