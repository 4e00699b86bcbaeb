"""python -m tf_blockrnn doctor | convert.

Where the op library cannot be loaded, a verb that needs it prints the reason in one line. Where
the package cannot be imported, Python does, and does not come here (see `_loader.import_error`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

_USAGE = """usage: python -m tf_blockrnn <verb> [arguments]

  doctor   reports the installed versions and engines; checks an op against NumPy
  convert  converts weights of recurrent layers between the files of frameworks"""

_VERBS = {"doctor": "tf_blockrnn._cli.doctor", "convert": "tf_blockrnn._cli.convert"}


def main(arguments: Sequence[str]) -> int:
    """Runs a verb and returns the exit status."""
    verb, *rest = arguments or [""]
    if verb not in _VERBS:
        asked_for_help = verb in ("-h", "--help")
        print(_USAGE, file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    try:
        return importlib.import_module(_VERBS[verb]).main(rest)
    except ImportError as error:
        if error.name != "tf_blockrnn":
            raise
        print(f"{verb}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Hides TensorFlow's informational messages; keeps its warnings.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    sys.exit(main(sys.argv[1:]))
