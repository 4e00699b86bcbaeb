"""What the programs that run.py starts share: where tests/helpers is, the command line, and running
the checks case by case. They import this module first."""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import os
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers import compare

NOT_RUN = 77  # the exit code of a program that cannot check anything here
LOST = 78  # of one that ends because the device does nothing more since a case


class CasesFailed(AssertionError):
    """Some cases of a check, each of which has been reported."""


class _Cases:
    """The cases of the checks of this program, one after another.

    With --record, a line of the file says that a case begins, and one what became of it. A case
    that the file knows already is not run: so another process goes on behind one that ended this.
    """

    def __init__(self):
        self.check = ""
        self.lives: Callable[[], bool] = lambda: True
        self.path: str | None = None
        self.seconds: float | None = None
        self.most: int | None = None
        self._number = 0
        self._known: set[tuple[str, int]] = set()

    def configure(self, arguments: argparse.Namespace) -> None:
        self.path, self.seconds, self.most = arguments.record, arguments.seconds, arguments.cases
        if self.path is not None:
            self._known = {(line["check"], line["case"]) for line in read(self.path)}

    def begin(self, check: str) -> None:
        self.check, self._number = check, 0

    def skips(self) -> bool:
        """Goes to the next case, and says whether it is not to be run."""
        self._number += 1
        known = (self.check, self._number) in self._known
        return known or (self.most is not None and self._number > self.most)

    def run(self, check: Callable[..., None], case: Any) -> str | None:
        """What is wrong, if anything is."""
        number, what = self._number, short(case)
        self._write(case=number, what=what)
        if self.seconds is not None:
            faulthandler.dump_traceback_later(self.seconds, exit=True)
        compare.observed.share, start, error = 0.0, time.monotonic(), None
        try:
            check(*(case if isinstance(case, tuple) else (case,)))
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
            print(f"{self.check}, {what}:")
            traceback.print_exc(file=sys.stdout)
        faulthandler.cancel_dump_traceback_later()
        took = round(1e3 * (time.monotonic() - start), 1)
        share = round(compare.observed.share, 4)
        self._write(case=number, what=what, error=error, milliseconds=took, share=share)
        if error is not None and not self.lives():
            print("the device does nothing more", flush=True)
            sys.exit(LOST)
        return error

    def failed(self, error: Exception) -> None:
        """An error of the check itself, outside its cases."""
        self._write(case=0, what="the check itself", error=f"{type(error).__name__}: {error}")

    def _write(self, **found: object) -> None:
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps({"check": self.check, **found}) + "\n")


_cases = _Cases()


def read(path: str | os.PathLike) -> list[dict]:
    """The lines of a record, none if it does not exist; the last one may be cut off."""
    found = []
    for line in pathlib.Path(path).read_text().splitlines() if os.path.exists(path) else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def short(value: Any) -> str:
    """A case in few words: of a dataclass what is not its default."""
    if isinstance(value, tuple):
        return " ".join(map(short, value))
    if not dataclasses.is_dataclass(value):
        return str(value)
    if "name" in (fields := {f.name: f.default for f in dataclasses.fields(value)}):
        return value.name
    parts = (
        f"{name}={short(getattr(value, name))}" if default is not dataclasses.MISSING
        else short(getattr(value, name))
        for name, default in fields.items() if getattr(value, name) != default
    )  # fmt: skip
    return " ".join(parts)


def each(cases: Iterable, check: Callable[..., None]) -> int:
    """Runs `check` of every case, a tuple being its arguments, and returns how many have run.

    A failure does not stop the others, but where the device is lost the program ends.
    """
    errors = [_cases.run(check, case) for case in cases if not _cases.skips()]
    failed = [error for error in errors if error is not None]
    if failed:
        raise CasesFailed(f"{len(failed)} of {len(errors)} cases")
    return len(errors)


def options() -> argparse.ArgumentParser:
    """Those that say which cases run; of each program's own parser a parent."""
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--list", action="store_true", help="print the names of the checks")
    add("--only", metavar="CHECK", help="the name of one check")
    add("--cases", type=int, metavar="N", help="at most the first N cases of each check")
    add("--seconds", type=float, help="for each case; one that takes longer ends the program")
    add("--record", metavar="FILE", help="what became of each case; those in it are not run again")
    return parser


def arguments_of(doc: str) -> argparse.Namespace:
    """The command line, the same for all programs, each of which ignores what it does not need."""
    parser = argparse.ArgumentParser(description=doc, parents=[options()])
    add = parser.add_argument
    add("--library", required=True)
    add("--small", action="store_true", help="few shapes; on a GPU for a sanitizer, which is slow")
    add("--unfilled", action="store_true", help="do not fill scratch with NaN")
    add("--cublas", help="the emulation's; else that of NVIDIA's Python package, or the system's")
    return parser.parse_args()


def not_run(why: str) -> NoReturn:
    print(f"not run: {why}")
    sys.exit(NOT_RUN)


def run(
    arguments: argparse.Namespace,
    checks: Mapping[str, Callable[[], int]],
    lives: Callable[[], bool] = lambda: True,
) -> None:
    """Runs each check, which returns its number of cases. A failure does not stop the others.

    lives: whether the device still does what it is asked, since some errors are sticky.
    """
    _cases.configure(arguments)
    if arguments.list:
        print("".join(f"check {name}\n" for name in checks), end="")
        return
    if arguments.only not in (None, *checks):
        sys.exit(f"no check {arguments.only!r}")
    _cases.lives = lives
    failed = []
    for name, check in checks.items():
        if arguments.only not in (None, name):
            continue
        start = time.monotonic()
        _cases.begin(name)
        try:
            line = f"ok  {name}: {check()} cases"
        except CasesFailed as error:
            failed.append(name)
            line = f"FAILED  {name}: {error}"
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            _cases.failed(error)
            failed.append(name)
            line = f"FAILED  {name}"
        print(f"{line}, {time.monotonic() - start:.1f} s", flush=True)
    if failed:
        print(f"failed: {'; '.join(failed)}")
        sys.exit(1)
