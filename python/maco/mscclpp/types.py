"""What the words of the DSL stand for: kinds of synchronisation, reductions, buffers and channels, and chunks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["BufferType", "ChannelType", "Chunk", "ReduceOperationType", "ReplicationPolicy", "SyncType"]


class _Word(Enum):
    """A word of a plan; `str()` gives it."""

    def __str__(self) -> str:
        return str(self.value)


class SyncType(_Word):
    """When the threads of a thread block wait for each other, as seen from an operation. `|`, `&` and `^` combine them.

    It is for MSCCL++'s executor: the plan of `CollectiveProgram.json` has it. In MACO all statements of a thread block follow each other.
    """

    none = "none"
    before = "before"
    after = "after"
    both = "both"

    def __or__(self, other: object) -> SyncType:
        return _SYNCS[_SYNCS.index(self) | _SYNCS.index(other)] if isinstance(other, SyncType) else NotImplemented

    def __and__(self, other: object) -> SyncType:
        return _SYNCS[_SYNCS.index(self) & _SYNCS.index(other)] if isinstance(other, SyncType) else NotImplemented

    def __xor__(self, other: object) -> SyncType:
        return _SYNCS[_SYNCS.index(self) ^ _SYNCS.index(other)] if isinstance(other, SyncType) else NotImplemented


_SYNCS = list(SyncType)  # in the order of their bits


class ReduceOperationType(_Word):
    """How chunks are reduced."""

    sum = "sum"
    min = "min"
    max = "max"


class BufferType(_Word):
    """A rank's three buffers."""

    input = "i"
    output = "o"
    scratch = "s"


class ChannelType(_Word):
    """The kinds of channels; `none` is of operations within a rank."""

    port = "port"
    memory = "memory"
    switch = "switch"
    none = "none"


class ReplicationPolicy(_Word):
    """How the instances of a program share its chunks: in turn, or not at all."""

    interleaved = "interleaved"
    none = "none"


@dataclass(frozen=True)
class Chunk:
    """`size` chunks of a rank's buffer, from number `index` on."""

    rank: int
    buffer: BufferType
    index: int
    size: int

    def __str__(self) -> str:
        return f"{self.buffer.name}[{self.index}:{self.index + self.size}] of rank {self.rank}"

    def overlaps(self, other: Chunk) -> bool:
        """Whether a chunk is in both."""
        same = self.rank == other.rank and self.buffer == other.buffer
        return same and self.index < other.index + other.size and other.index < self.index + self.size
