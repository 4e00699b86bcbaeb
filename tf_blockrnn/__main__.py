"""python -m tf_blockrnn doctor | convert.

Help, the version and errors of usage need neither TensorFlow nor the op library. Where the library
cannot be loaded, a verb that needs it prints the reason in one line. Where the package cannot be
imported, Python does, and does not come here (see `_loader.import_error`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from tf_blockrnn._version import VERSION

_PROGRAM = "python -m tf_blockrnn"
_VERBS = {"doctor": "tf_blockrnn._cli.doctor", "convert": "tf_blockrnn._cli.convert"}
_EPILOG = """verbs:
  doctor   reports the installed versions and engines; checks an op against NumPy
  convert  converts weights of recurrent layers between the files of frameworks

Each has a --help of its own."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        usage="%(prog)s [-h] [--version] VERB [arguments]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tf_blockrnn {VERSION}")
    parser.add_argument("verb", metavar="VERB", choices=_VERBS, help="one of the verbs below")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # of a verb without any
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs a verb and returns the exit status; argparse exits where there is no verb to run."""
    asked = _parser().parse_args(arguments)
    try:
        return importlib.import_module(_VERBS[asked.verb]).main(asked.arguments)
    except ImportError as error:
        if error.name != "tf_blockrnn":
            raise
        print(f"{asked.verb}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Hides TensorFlow's informational messages; keeps its warnings.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.exit(main(sys.argv[1:]))
