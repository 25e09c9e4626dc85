"""Operations of a thread block, and how those that follow each other become one.

An operation is called what plans call it. Its sources and targets are chunks of its own rank or of peers; `wheres` are the caller's lines,
those of a list one for each of its entries (see `places`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ._recording import Where
from .types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType

if TYPE_CHECKING:
    from .channel import BetweenRanks, SwitchChannel
    from .semaphore import Semaphore

PUTS = ("put", "ppkt", "rppkt", "pws", "pwsf")
SIGNALS = ("signal", "rlxsignal")
WAITS = ("wait", "rlxwait")
SYNCED = (*SIGNALS, *WAITS, "flush", "sem_acquire", "sem_release")  # with a data_sync
REDUCES = ("re", "repkt", "rre")


@dataclass(frozen=True)
class Operation:
    name: str
    wheres: tuple[Where, ...]
    sources: tuple[Chunk, ...] = ()
    targets: tuple[Chunk, ...] = ()
    channels: tuple[BetweenRanks | SwitchChannel, ...] = ()
    kind: ChannelType = ChannelType.none  # of its channels
    sync: SyncType = SyncType.none
    part: tuple[int, int] | None = None  # of a group of thread blocks: which, of how many
    reduce: ReduceOperationType | None = None
    semaphores: tuple[Semaphore, ...] = ()
    blocks: tuple[int, ...] = ()  # whom a barrier is of
    loop: tuple[int, int] = (0, 0)  # of a pipeline: unit in bytes, chunks
    body: tuple[Operation, ...] = ()


# ---- one after the other


def fused(operations: Sequence[Operation]) -> list[Operation]:
    """The same with fewer operations, as `instr_fusion` of a program asks."""
    made: list[Operation] = []
    for operation in operations:
        if operation.name == "pipeline":
            operation = replace(operation, body=tuple(fused(operation.body)))
        one = _joined(made[-1], operation) if made else None
        if one is None:
            made.append(operation)
        else:
            made[-1] = one
    return made


def _joined(a: Operation, b: Operation) -> Operation | None:
    """One operation that does both, or None."""
    if a.kind != b.kind and a.kind is not ChannelType.none and b.kind is not ChannelType.none:
        return None
    if a.part != b.part:
        return None
    if a.name == b.name:
        return _alike(a, b)
    if a.name == "nop" and b.name == "barrier":
        return b
    if a.name == "barrier" and b.name == "nop":
        return a
    if a.name == "glre" and b.name == "gstore":
        return _group_reduced(a, b)
    return _sent(a, b)


def _alike(a: Operation, b: Operation) -> Operation | None:
    both = replace(a, wheres=a.wheres + b.wheres, channels=a.channels + b.channels, sync=a.sync | b.sync)
    if a.name in SIGNALS or a.name in WAITS:
        return None if set(a.channels) & set(b.channels) else both
    if a.name == "flush":
        return replace(both, channels=tuple(dict.fromkeys(both.channels)))
    if a.name in ("sem_acquire", "sem_release"):
        return replace(both, semaphores=a.semaphores + b.semaphores)
    if a.name == "nop":
        return a
    several = a.name == "get" or (a.name in PUTS and (a.name != "rppkt" or a.sources[0] == b.sources[0]))
    if several and a.sources[0].size == b.sources[0].size:
        # Joined, the second would read its sources before the first has written them.
        if any(source.overlaps(target) for source in b.sources for target in a.targets):
            return None
        return replace(both, sources=a.sources + b.sources, targets=a.targets + b.targets)
    # A second reduction that reads the first one's result, or reduces into the same chunk, continues the first one.
    if a.name not in REDUCES or b.targets != a.targets or a.reduce != b.reduce or b.sources[0] not in (a.sources[0], a.targets[0]):
        return None
    if any(source.overlaps(a.targets[0]) for source in (*a.sources[1:], *b.sources[1:])):
        return None
    return replace(both, sources=a.sources + b.sources[1:])


def _sent(a: Operation, b: Operation) -> Operation | None:
    """Joins a reduction and a send of its result, to peers or into packets, into one operation."""
    if not a.name.startswith(("re", "rre")) or not b.sources or a.name == "rppkt":
        return None
    result = a.targets[0]
    packets = a.name.endswith("pkt")
    copied = a.name.startswith("rec")  # targets[1] is its copy in packets
    from_result, from_copy = b.sources[0] == result, copied and b.sources[0] == a.targets[1]
    both = replace(a, wheres=a.wheres + b.wheres, targets=a.targets + b.targets, channels=a.channels + b.channels)
    if a.name == "repkt" and b.name == "cpkt" and from_result:
        return replace(both, name="recpkt")
    if b.kind is not ChannelType.memory or len(b.targets) != 1:
        return None
    sends = (b.name == "put" and not packets and from_result) or (
        packets and ((b.name == "ppkt" and from_result) or (b.name == "rppkt" and from_copy))
    )
    if not sends or any(source.overlaps(b.targets[0]) and source != b.targets[0] for source in a.sources):
        return None
    names = {"re": "res", "rre": "rres", "repkt": "respkt", "recpkt": "recspkt"}
    return replace(both, name=names.get(a.name, a.name), kind=ChannelType.memory)


def _group_reduced(a: Operation, b: Operation) -> Operation | None:
    """A switch's reduction that it stores at once: a chunk of each rank of the group, there and back."""
    if a.targets[0] != b.sources[0] or a.channels != b.channels:
        return None
    # The rank's own place of the result is among those that are stored.
    if a.targets[0] not in b.targets:
        return None
    return replace(a, name="glres", wheres=a.wheres + b.wheres, targets=b.targets)


# ---- data that a block's threads share


def synced(operations: Sequence[Operation], auto: bool) -> list[Operation]:
    """With the `nop` at which the threads of the block wait for each other: where `sync` says so and, with `auto`, between operations of
    which one writes what the other reads or writes."""
    made: list[Operation] = []

    def wait(where: Where) -> None:
        if not made or made[-1].name not in ("nop", "barrier"):
            made.append(Operation("nop", (where,)))

    touched: list[tuple[Chunk, bool]] = []  # since the last wait; whether it was written
    for operation in operations:
        if operation.name == "pipeline":
            operation = replace(operation, body=tuple(synced(operation.body, auto)))
        if operation.name in ("nop", "barrier"):
            touched.clear()
            if operation.name == "barrier" and made and made[-1].name == "nop":
                made.pop()
            if operation.name == "barrier" or not made or made[-1].name not in ("nop", "barrier"):
                made.append(operation)
            continue
        if operation.name in SYNCED and operation.sync in (SyncType.before, SyncType.both):
            wait(operation.wheres[0])
            touched.clear()
        uses = _uses(operation) if auto else []
        if any((writes or wrote) and chunk.overlaps(other) for chunk, writes in uses for other, wrote in touched):
            wait(operation.wheres[0])
            touched.clear()
        touched += uses
        made.append(operation)
        if operation.name in SYNCED and operation.sync in (SyncType.after, SyncType.both):
            wait(operation.wheres[0])
            touched.clear()
    return made


def _uses(operation: Operation) -> list[tuple[Chunk, bool]]:
    """The chunks that an operation reads and writes, and whether it writes them; those of peers are nobody's in the block."""
    if operation.name == "pipeline":
        return [use for one in operation.body for use in _uses(one)]
    return [(chunk, False) for chunk in operation.sources] + [(chunk, True) for chunk in operation.targets]


# ---- lines


def places(operation: Operation, rank: int, inplace: InPlace) -> list[Where]:
    """For each statement that MACO makes of the operation (see compiler/frontend/mscclpp_ops.cpp) the line that it comes from."""
    wheres, sources, targets = operation.wheres, operation.sources, operation.targets
    first = wheres[0]
    if operation.name in ("nop", "flush"):
        return []
    if operation.name == "pipeline":
        return [place for one in operation.body for place in places(one, rank, inplace)]
    if operation.name in SIGNALS or operation.name in WAITS or operation.name.startswith("sem_"):
        return list(wheres)
    if operation.name == "get":
        return list(wheres)
    if operation.name in PUTS:
        moved = [first] if all(source == sources[0] for source in sources) else list(wheres)
        return moved + (list(wheres) if operation.name in ("pws", "pwsf") else [])
    if operation.name in ("gstore", "gstorepkt") or (operation.name.startswith("glre") and len(sources) == 1):
        return [first] * _sendings(rank, targets, sources[0], inplace)
    into_scratch = targets and targets[0].buffer is BufferType.scratch
    if operation.name in ("respkt", "recpkt", "recspkt") and into_scratch:
        return [first] * (1 + _sendings(rank, targets[1:], targets[0], inplace))
    return [first]


def _sendings(rank: int, targets: Sequence[Chunk], source: Chunk, inplace: InPlace) -> int:
    """A copy to own chunks and a put to those of others, if there are such."""
    found = [target for target in targets if not inplace.same(target, source)]
    return any(one.rank == rank for one in found) + any(one.rank != rank for one in found)


@dataclass(frozen=True)
class InPlace:
    """Which chunks are the same memory: with `inplace` the smaller of input and output is a rank's block of the larger."""

    inplace: bool
    inputs: int  # chunks of a rank's input
    outputs: int

    def same(self, a: Chunk, b: Chunk) -> bool:
        return self._at(a) == self._at(b)

    def _at(self, chunk: Chunk) -> Chunk:
        if not self.inplace or chunk.buffer is BufferType.scratch:
            return chunk
        index = chunk.index
        if chunk.buffer is BufferType.output and self.outputs < self.inputs:
            index += chunk.rank * self.outputs
        if chunk.buffer is BufferType.input and self.inputs < self.outputs:
            index += chunk.rank * self.inputs
        return Chunk(chunk.rank, BufferType.input, index, chunk.size)
