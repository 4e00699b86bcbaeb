"""The progress bar of the long-running verbs."""

import sys
from typing import TextIO


class Progress:
    """A progress bar: one rewritten line on a terminal, otherwise a line per tenth.

    Example:
      >>> import io
      >>> from tf_blockrnn._cli.progress import Progress
      >>> stream = io.StringIO()
      >>> Progress("work", stream).show(0.5, "half done")
      >>> stream.getvalue()
      'work [############............]  50%  half done\\n'
    """

    def __init__(self, label: str, stream: TextIO | None = None):
        self.label = label
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self._shown = -1

    def show(self, share: float, note: str) -> None:
        """Shows the share of the work that is done, 0..1, and a note."""
        share = min(1.0, share)
        if not self.live and int(share * 10) == self._shown:
            return
        self._shown = int(share * 10)
        bar = ("#" * int(share * 24)).ljust(24, ".")
        line = f"{self.label} [{bar}] {share:4.0%}  {note}"
        self.stream.write(f"\r{line:<79}" if self.live else f"{line}\n")
        self.stream.flush()

    def done(self) -> None:
        """Ends the line."""
        if self.live:
            self.stream.write("\n")
