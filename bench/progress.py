"""Progress on stderr: a line rewritten in place on a terminal, else a line per finished case."""

from __future__ import annotations

import shutil
import sys
import time


class Progress:
    """Counts cases; `note` shows what is running, `done` the result of a case."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._count = 0
        self._label = ""
        self._start = time.monotonic()
        self._live = sys.stderr.isatty()

    def start(self, label: str) -> None:
        """Begins a new case."""
        self._count += 1
        self._label = label
        self.note("")

    def note(self, text: str) -> None:
        """Shows the current activity within the case."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = f"{self._head()} {self._label}  {text}"[:width]
            print("\r" + line.ljust(width), end="", file=sys.stderr, flush=True)

    def done(self, text: str) -> None:
        """Ends the case."""
        begin, end = ("\r", "\033[K") if self._live else ("", "")  # \033[K clears the rest
        print(f"{begin}{self._head()} {self._label}  {text}{end}", file=sys.stderr, flush=True)

    def _head(self) -> str:
        seconds = int(time.monotonic() - self._start)
        return f"[{self._count}/{self._total} {seconds // 60}:{seconds % 60:02d}]"
