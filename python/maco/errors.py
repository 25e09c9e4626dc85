"""The exceptions of the package.

`Error` is the base of all. Each has `code`, one of `ErrorCode`, and `diagnostics`, a tuple that is empty where no place in a text is
known. All of them can be pickled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    `rank` is the first rank that says so. `task` is the op whose task stopped. `event` is what it waited for, in words, None if it
    didn't wait. `expected` and `seen` are the counts of the event; of an index, how many there are and the index. Each is None where it
    isn't known.
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


_OP = re.compile(r"'([^']*)'")


def nested(found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Diagnostics in the library's order, each with the notes behind it."""
    made: list[Diagnostic] = []
    for one in found:
        if one.severity == "note" and made:
            made[-1] = replace(made[-1], notes=(*made[-1].notes, one))
        else:
            made.append(one)
    return tuple(made)


_TARGET = re.compile(r"--target=(\w+)")
_DIFFERENT = ("the ranks were told different things", "has other dims or scalars in memory than rank")


def from_library(
    code: int, message: str, diagnostics: Sequence[Diagnostic] = (), stopped: tuple[int, str, str, int, int] | None = None
) -> Error:
    """The exception for a `maco_error`: its code, message, diagnostics in a row, and what stopped (rank, task, event, expected, seen)."""
    # The library's messages name options of its command line.
    message = _TARGET.sub(r"Graph.compile(target='\1')", message)
    if any(words in message for words in _DIFFERENT):
        return MismatchError(message, code=ErrorCode(code))
    if code == ErrorCode.INVALID_GRAPH:
        return GraphError(message, diagnostics=nested(diagnostics))
    if code == ErrorCode.UNAVAILABLE:
        return Unavailable(message)
    if code == ErrorCode.RUN_FAILED:
        if stopped is None:
            return LaunchError(message)
        rank, task, event, expected, seen = stopped
        op = _OP.search(task)
        return LaunchError(message, rank=rank, task=op.group(1) if op else None, event=event or None, expected=expected, seen=seen)
    known = code in tuple(ErrorCode)
    return Error(message, code=ErrorCode(code) if known else ErrorCode.INTERNAL)
