"""A line on a terminal that says how far loading is."""

from __future__ import annotations

import os
import sys
import threading
import time

__all__ = ["Bar"]

_CELLS = 24
_EVERY = 0.1


class Bar:
    """Called with what is being done and how many bytes of how many that took; nothing to do removes the line. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown, self._what, self._at = 0, "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            if what and what == self._what and now - self._at < _EVERY and done < total:
                return
            self._what, self._at = what, now
            line = what
            if what and total:
                cells = _CELLS * done // total
                line = f"{what} [{'#' * cells}{'.' * (_CELLS - cells)}] {100 * done // total} % of {_size(total)}"
            self._show(line)

    def _show(self, line: str) -> None:
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 80
        line = line[: max(columns - 1, 0)]
        if not line and not self._shown:
            return
        sys.stderr.write("\r" + line + " " * max(self._shown - len(line), 0) + ("" if line else "\r"))
        sys.stderr.flush()
        self._shown = len(line)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
