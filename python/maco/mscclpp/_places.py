"""From lines of a collective's text back to the caller's Python."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from ._recording import Where

Places = dict[int, list[tuple[int, Where]]]  # by line, from 1: rank and place of each statement that it stands for

_BLOCK = re.compile(r"\bblock = (\d+)")
_CONDITION = re.compile(r", if = ([^,()]+)\)$")
_CLAUSE = re.compile(r"rank(?: % (\d+))? (==|!=|<|>=|<=) (\d+)\Z")
_OTHERS = re.compile(r"(?:signal\(to|wait\(from) = others\b")
_ALONE = re.compile(r"barrier\(blocks = \[\d+\]")
_SIGNS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_DOER = re.compile(r"\bblock \d+ of rank (\d+)")
_RANK = re.compile(r"\brank (\d+)")


def places_of(text: str, statements: Sequence[Sequence[Sequence[Where]]]) -> Places:
    """Which statements each line of an imported collective stands for.

    `statements[rank][block]` are the lines of the statements of a thread block, in their order, which the text keeps. Without those of
    blocks where the text has other numbers of statements.
    """
    world = len(statements)
    found: Places = {}
    used = [[0] * len(blocks) for blocks in statements]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("  ") or line.lstrip().startswith("#") or _ALONE.search(line):
            continue
        block = _BLOCK.search(line)
        at = int(block.group(1)) if block else 0
        times = world - 1 if _OTHERS.search(line) else 1
        for rank in _ranks(line, world):
            if at >= len(statements[rank]):
                return {}
            start = used[rank][at]
            used[rank][at] += times
            found.setdefault(number, []).extend((rank, where) for where in statements[rank][at][start : start + times])
    counts = [[len(block) for block in blocks] for blocks in statements]
    return found if used == counts else {}


def _ranks(line: str, world: int) -> list[int]:
    """The ranks that do the statement of a line."""
    condition = _CONDITION.search(line)
    ranks = list(range(world))
    for clause in condition.group(1).split(" && ") if condition else []:
        known = _CLAUSE.match(clause)
        if known is None:
            return []
        stride, sign, bound = int(known.group(1) or world), known.group(2), int(known.group(3))
        compare = _SIGNS[sign]
        ranks = [rank for rank in ranks if compare(rank % stride, bound)]
    return ranks


def place(line: int, message: str, places: Mapping[int, list[tuple[int, Where]]]) -> Where | None:
    """Where a line's statement comes from: that of the first block, or else rank, which the message names; else of the first rank."""
    candidates = places.get(line)
    if not candidates:
        return None
    for rank in map(int, _DOER.findall(message) + _RANK.findall(message)):
        for one, where in candidates:
            if one == rank:
                return where
    return candidates[0][1]
