"""Loops over pieces of chunks."""

from __future__ import annotations

from types import TracebackType

from ._operations import Operation
from ._recording import a_number, caller, current, wrong

__all__ = ["Loop", "LoopIterationContext"]


class LoopIterationContext:
    """What stands in its `with` is done piece by piece: pieces of `unit` bytes of `num_chunks` chunks, until all of these are done.

    Every operation that moves data must be of `num_chunks` chunks. Thread blocks go round by themselves; semaphores and signals order them.
    Packets can't be in a loop, nor loops in loops.
    """

    def __init__(self, unit: int, num_chunks: int) -> None:
        self.unit = a_number(unit, "unit", 1, (1 << 31) - 1)
        self.num_chunks = a_number(num_chunks, "num_chunks", 1, 1 << 16)
        self._done: dict[tuple[int, int], list[Operation]] = {}
        self._where = caller()
        self._used = False

    def __enter__(self) -> LoopIterationContext:
        program = current()
        if program._loop is not None:
            raise wrong("a loop can't be inside of another", notes=[("the outer one is here", program._loop._where)])
        if self._used:
            raise wrong("this loop was written already: make another", notes=[("it was made here", self._where)])
        self._used = True
        program._loop = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        program = current()
        program._loop = None
        if kind is not None:
            return
        for (rank, block), body in self._done.items():
            loop = Operation("pipeline", (self._where,), loop=(self.unit, self.num_chunks), body=tuple(body))
            program._add(rank, block, loop)

    def _ranks(self) -> set[int]:
        return {rank for rank, _ in self._done}


class Loop:
    """Another name for the loops."""

    @staticmethod
    def iteration(unit: int, num_chunks: int) -> LoopIterationContext:
        """`LoopIterationContext(unit, num_chunks)`."""
        return LoopIterationContext(unit, num_chunks)
