"""Converts the errors that a format's reader raises for a corrupt file to ValueError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the error's type if the message is empty.

    Example:
      >>> from tf_blockrnn.weights._damage import first_line
      >>> first_line(ValueError("two\\nlines")), first_line(EOFError())
      ('two', 'EOFError')
    """
    # str() of a KeyError quotes its text.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    lines = str(text).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def intact(what: str, *raised: type[Exception]) -> Iterator[None]:
    """Converts errors of a reader to ValueError; errors of other types are not changed.

    Args:
      what: the format of the file, for the message.
      raised: what the reader raises for a corrupt file in addition to OSError and ValueError.
    """
    try:
        yield
    except raised as error:
        raise ValueError(f"the file is not an intact {what}: {first_line(error)}") from error
