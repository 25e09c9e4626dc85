"""The exceptions of the package.

`Error` is the base of all. Each has `code`, one of `ErrorCode`, and `diagnostics`, a tuple that is empty where no place in a text is
known. All of them can be pickled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = ["Diagnostic", "Error", "ErrorCode", "GraphError", "LaunchError", "MismatchError", "Unavailable"]


class ErrorCode(IntEnum):
    """How a call failed, with the numbers of `maco_code` in maco_c.h."""

    INVALID_ARGUMENT = 1  # the call doesn't fit
    INVALID_GRAPH = 2  # the graph is wrong or can't be compiled
    UNAVAILABLE = 3  # no library, GPU, driver, NVRTC or C++ compiler
    RUN_FAILED = 4  # no memory, or a launch that was stopped
    INTERNAL = 5  # a fault of MACO's


@dataclass(frozen=True)
class Diagnostic:
    """What is wrong with a graph, and where.

    `severity` is "error", "warning" or "note". `file` and `line` are those of the Python call where a graph was built in Python, and
    of the text else. `line` and `column` count from 1; 0 means that it isn't known. `notes` belong to this diagnostic.
    """

    severity: str
    file: str
    line: int
    column: int
    text: str
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        lines = [f"{place}: {self.severity}: {self.text}" if place else f"{self.severity}: {self.text}"]
        lines += [str(note) for note in self.notes]
        return "\n".join(lines)


class Error(Exception):
    """What MACO can't do, with the reason as its text."""

    _default_code = ErrorCode.INVALID_ARGUMENT

    def __init__(self, message: str, *, code: ErrorCode | None = None, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code: ErrorCode = self._default_code if code is None else ErrorCode(code)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.message, dict(self.__dict__))


def _restore(kind: type[Error], message: str, state: dict[str, Any]) -> Error:
    error = kind.__new__(kind, message)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class GraphError(Error):
    """A graph is wrong or can't be compiled; `diagnostics` say where."""

    _default_code = ErrorCode.INVALID_GRAPH


class Unavailable(Error):
    """This machine lacks what the call needs: the library, a GPU, its driver, NVRTC, NCCL or a C++ compiler."""

    _default_code = ErrorCode.UNAVAILABLE


class LaunchError(Error):
    """A launch was stopped or couldn't begin, or memory for it can't be had.

    `rank` is the first rank that says so. `task` is the op whose task stopped. `event` is what it waited for, in words. `expected` and
    `seen` are the counts of the event. Each is None where it isn't known.
    """

    _default_code = ErrorCode.RUN_FAILED

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        diagnostics: Sequence[Diagnostic] = (),
        rank: int | None = None,
        task: str | None = None,
        event: str | None = None,
        expected: int | None = None,
        seen: int | None = None,
    ) -> None:
        super().__init__(message, code=code, diagnostics=diagnostics)
        self.rank = rank
        self.task = task
        self.event = event
        self.expected = expected
        self.seen = seen


class MismatchError(Error):
    """Ranks that have to agree on a graph, a kernel or its options don't; the text names them and what differs."""


# runtime/host/session.cpp, explain_report.
_WAITED = re.compile(
    r"^rank (?P<rank>\d+), SM \d+: (?:stopped by (?:rank \d+|the host) while )?"
    r"task (?:'(?P<task>[^']*)' \([^)]*\) tile \d+|\d+ \(call \d+\)) waited (?:.*? without progress )?for "
    r"(?P<event>.*): expected (?P<expected>-?\d+), seen (?P<seen>-?\d+)$"
)
_OP = re.compile(r"^rank (?P<rank>\d+): op '(?P<task>[^']*)': ")
_TASK = re.compile(r"^rank (?P<rank>\d+), SM \d+: task '(?P<task>[^']*)'")
_RANK = re.compile(r"^rank (?P<rank>\d+)\b")


def parse_launch(message: str) -> dict[str, Any]:
    """What a message of a stopped launch says, as keywords of `LaunchError`.

    The first line that names a rank decides: the library puts the cause first. Keys that the message doesn't tell are left out.
    """
    for line in message.splitlines():
        for pattern in (_WAITED, _OP, _TASK, _RANK):
            found = pattern.match(line)
            if not found:
                continue
            groups = {key: value for key, value in found.groupdict().items() if value is not None}
            return {key: int(value) if key in ("rank", "expected", "seen") else value for key, value in groups.items()}
    return {}


_PLACED = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning|note): (?P<text>.*)$")
_UNPLACED = re.compile(r"^(?:(?P<file>[^:\n]+): )?(?P<severity>error|warning|note): (?P<text>.*)$")


def parse_diagnostics(message: str) -> tuple[Diagnostic, ...]:
    """The diagnostics in a message of the library: `FILE:LINE:COLUMN: error: TEXT`, each with the notes behind it.

    The lines of source and the carets between them are left out. Lines behind a diagnostic that are neither belong to its text.
    """
    found: list[tuple[Diagnostic, list[Diagnostic]]] = []
    for line in message.splitlines():
        match = _PLACED.match(line) or _UNPLACED.match(line)
        if not match:
            continue
        groups = match.groupdict()
        one = Diagnostic(
            groups["severity"], groups["file"] or "", int(groups.get("line") or 0), int(groups.get("column") or 0), groups["text"]
        )
        if one.severity == "note" and found:
            found[-1][1].append(one)
        else:
            found.append((one, []))
    return tuple(Diagnostic(d.severity, d.file, d.line, d.column, d.text, tuple(notes)) for d, notes in found)


_DIFFERENT = ("the ranks were told different things", "has other dims or scalars in memory than rank")


def from_library(code: int, message: str) -> Error:
    """The exception for a `maco_error` of this code and message."""
    if any(words in message for words in _DIFFERENT):
        return MismatchError(message, code=ErrorCode(code))
    if code == ErrorCode.INVALID_GRAPH:
        return GraphError(message, diagnostics=parse_diagnostics(message))
    if code == ErrorCode.UNAVAILABLE:
        return Unavailable(message)
    if code == ErrorCode.RUN_FAILED:
        return LaunchError(message, **parse_launch(message))
    known = code in tuple(ErrorCode)
    return Error(message, code=ErrorCode(code) if known else ErrorCode.INTERNAL)
