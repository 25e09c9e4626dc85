"""Semaphores, which order the thread blocks of a rank."""

from __future__ import annotations

from typing import SupportsIndex

from ._operations import Operation
from ._recording import a_block, a_number, a_rank, a_sync, caller, current, in_loop, wrong
from .loop import LoopIterationContext
from .types import SyncType

__all__ = ["Semaphore"]


class Semaphore:
    """A counter of one rank that its thread blocks wait for, `initial_value` at first.

    One thread block acquires it, any release it, as often as it is acquired. `size` is how many counters it has, which is one.
    """

    def __init__(self, rank: SupportsIndex, initial_value: int = 0, *, size: int = 1) -> None:
        self._program = current()
        self.rank = a_rank(rank, self._program.num_ranks, "the rank of a semaphore")
        self.initial_value = a_number(initial_value, "initial_value", 0, (1 << 31) - 1)
        if a_number(size, "size", 1) != 1:
            raise wrong(f"a semaphore is one counter, not {size}: make {size} of them; initial_value is what it counts from")
        self.id = self._program._semaphore(self)

    def acquire(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Thread block `tb` waits until it is above 0 and counts it down. `sync` is another word for `data_sync`."""
        self._do("sem_acquire", tb, a_sync(data_sync, sync), iter_context)

    def release(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Thread block `tb` counts it up. `sync` is another word for `data_sync`."""
        self._do("sem_release", tb, a_sync(data_sync, sync), iter_context)

    def _do(self, name: str, tb: int, sync: SyncType, iter_context: LoopIterationContext | None) -> None:
        program = current()
        if program is not self._program:
            raise wrong(f"this semaphore is of another program, '{self._program.name}'")
        in_loop(iter_context)
        program._record(self.rank, a_block(tb), Operation(name, (caller(),), sync=sync, semaphores=(self,)))

    def __repr__(self) -> str:
        return f"<maco.mscclpp.Semaphore {self.id} of rank {self.rank}>"
