"""What the reader of a format raises of a damaged file, as the ValueError that is documented."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


def said(error: Exception) -> str:
    """The first line of what an error says, its type where it says nothing."""
    # A KeyError shows its text as a literal.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    lines = str(text).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def whole(what: str, *raised: type[Exception]) -> Iterator[None]:
    """For the calls of a reader alone: an error of ours, of another type, stays what it is.

    Args:
      what: the file shall be.
      raised: what the reader raises of a damaged file beside OSError and ValueError.
    """
    try:
        yield
    except raised as error:
        raise ValueError(f"the file is no whole {what}: {said(error)}") from error
