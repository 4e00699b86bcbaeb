"""python -m tf_blockrnn doctor | demo | convert | bench."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import tf_blockrnn
from tf_blockrnn._cli import report

_USAGE = """usage: python -m tf_blockrnn <verb> [arguments]

  doctor   reports the installed versions and engines; checks an op against NumPy
  demo     trains a character model on real text
  convert  converts weights of recurrent layers between the files of frameworks
  bench    measures the ops against TensorFlow's own; in a checkout only"""


def _doctor(arguments: list[str]) -> int:
    if tf_blockrnn._problem is not None:
        report.show([*report.versions(), ("import", report.failure(tf_blockrnn._problem))])
        return 1
    from tf_blockrnn._cli import doctor

    return doctor.main(arguments)


def _demo(arguments: list[str]) -> int:
    from tf_blockrnn import demo

    return demo.main(arguments) or 0


def _convert(arguments: list[str]) -> int:
    from tf_blockrnn._cli import convert

    return convert.main(arguments)


def _bench(arguments: list[str]) -> int:
    checkout = Path(__file__).resolve().parent.parent
    if not (checkout / "bench" / "run.py").exists():
        print("bench is part of a checkout of tf_blockrnn, not of the installed package.")
        return 2
    sys.path.insert(0, str(checkout))
    return importlib.import_module("bench.run").main(arguments) or 0


_VERBS = {"doctor": _doctor, "demo": _demo, "convert": _convert, "bench": _bench}


def main(arguments: list[str]) -> int:
    """Runs a verb and returns the exit status."""
    if not arguments or arguments[0] not in _VERBS:
        asked_for_help = bool(arguments) and arguments[0] in ("-h", "--help")
        print(_USAGE, file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    verb = _VERBS[arguments[0]]
    if tf_blockrnn._problem is not None and verb is not _doctor:
        print(report.failure(tf_blockrnn._problem), file=sys.stderr)
        return 1
    return verb(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
