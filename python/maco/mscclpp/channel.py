"""Channels, through which ranks reach each other's memory and signal each other.

A channel is one end: of rank `src_rank`, which does what the channel is told, towards `dst_rank`. The n-th memory channel of a rank to
another meets the n-th of that to it, and so do port channels: their signals are those that the other waits for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, SupportsIndex

from ._operations import Operation
from ._recording import (
    a_block,
    a_bool,
    a_chunk,
    a_number,
    a_rank,
    a_sync,
    a_word,
    blocks_of,
    caller,
    chunks_of,
    current,
    in_loop,
    in_scratch,
    of_one_size,
    wrong,
)
from .loop import LoopIterationContext
from .thread_block_group import ThreadBlockGroup
from .types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType

__all__ = [
    "BufferType",
    "Channel",
    "ChannelType",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "SwitchChannel",
    "SyncType",
    "ThreadBlockGroup",
]


class BetweenRanks:
    """A channel of two ranks."""

    channel_type: ClassVar[ChannelType]

    def __init__(self, dst_rank: SupportsIndex, src_rank: SupportsIndex) -> None:
        self._program = current()
        self.dst_rank = a_rank(dst_rank, self._program.num_ranks, "dst_rank")
        self.src_rank = a_rank(src_rank, self._program.num_ranks, "src_rank")
        if self.dst_rank == self.src_rank:
            raise wrong(f"a channel is between two ranks, but both of its ends are of rank {self.src_rank}")
        self.channel_id = self._program._channel(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dst_rank={self.dst_rank}, src_rank={self.src_rank})"

    def _record(self, block: int, operation: Operation) -> None:
        program = current()
        if program is not self._program:
            raise wrong(f"this channel is of another program, '{self._program.name}'")
        program._record(self.src_rank, block, operation)

    def _synchronise(self, name: str, tb: Any, data_sync: Any, sync: Any, iter_context: Any) -> None:
        in_loop(iter_context)
        chosen = a_sync(data_sync, sync)
        self._record(a_block(tb), Operation(name, (caller(),), channels=(self,), kind=self.channel_type, sync=chosen))

    def _end(self, which: str) -> str:
        return f"the channel's {which}, since it goes from rank {self.src_rank} to rank {self.dst_rank}"

    def _put(self, method: str, name: str, to: Any, source: Any, tb: Any, tb_group: Any, iter_context: Any) -> None:
        in_loop(iter_context)
        source = a_chunk(source, "src_chunk", self.src_rank, self._end("src_rank"))
        to = a_chunk(to, "dst_chunk", self.dst_rank, self._end("dst_rank"))
        of_one_size(method, source, [to])
        if name in ("ppkt", "rppkt"):
            in_scratch(method, to)
        if name == "rppkt":
            in_scratch(method, source)
        for block, part in blocks_of(tb, tb_group):
            self._record(block, Operation(name, (caller(),), (source,), (to,), (self,), self.channel_type, part=part))


class MemoryChannel(BetweenRanks):
    """A channel through memory that both ranks reach, as on one node. Each call makes another one: keep it, to use it again."""

    channel_type = ChannelType.memory

    def signal(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        relaxed: bool = False,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Signals the other rank. `relaxed`: that it came so far, but not to see what it wrote. `sync` is another word for `data_sync`."""
        self._synchronise("rlxsignal" if a_bool(relaxed, "relaxed") else "signal", tb, data_sync, sync, iter_context)

    def wait(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        relaxed: bool = False,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits for the next signal of the other rank. `relaxed`: but not to see what it wrote. `sync` is another word for `data_sync`."""
        self._synchronise("rlxwait" if a_bool(relaxed, "relaxed") else "wait", tb, data_sync, sync, iter_context)

    def relaxedSignal(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`signal` with `relaxed`."""
        self._synchronise("rlxsignal", tb, data_sync, sync, iter_context)

    def relaxedWait(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`wait` with `relaxed`."""
        self._synchronise("rlxwait", tb, data_sync, sync, iter_context)

    def flush(self, *_: Any, **__: Any) -> None:
        """Raises `maco.GraphError`: only port channels have it."""
        raise wrong("flush() is of port channels: what a memory channel wrote is seen after its signal")

    def put(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Copies chunks of the rank's own to the other."""
        self._put("put", "put", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Copies chunks of the rank's own into the other's scratch memory as packets."""
        self._put("put_packets", "ppkt", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits for packets in the rank's scratch memory and copies them into the other's."""
        self._put("read_put_packets", "rppkt", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def get(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Copies chunks of the other rank, `src_chunk`, to the rank's own."""
        in_loop(iter_context)
        to = a_chunk(dst_chunk, "dst_chunk", self.src_rank, self._end("src_rank"))
        source = a_chunk(src_chunk, "src_chunk", self.dst_rank, self._end("dst_rank"))
        of_one_size("get", source, [to])
        for block, part in blocks_of(tb, tb_group):
            self._record(block, Operation("get", (caller(),), (source,), (to,), (self,), self.channel_type, part=part))

    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: Chunk | Iterable[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        local_dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType | str = ReduceOperationType.sum,
        *,
        op: ReduceOperationType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Reduces a chunk of the rank's own and such of the other into `local_dst_chunk`, `local_src_chunk` if it isn't given.

        `op` is another word for `reduce_op`.
        """
        in_loop(iter_context)
        how = a_word(reduce_op if op is None else op, ReduceOperationType, "reduce_op" if op is None else "op")
        source = a_chunk(local_src_chunk, "local_src_chunk", self.src_rank, self._end("src_rank"))
        others = chunks_of(remote_src_chunks, "remote_src_chunks", self.dst_rank, self._end("dst_rank"))
        to = source
        if local_dst_chunk is not None:
            to = a_chunk(local_dst_chunk, "local_dst_chunk", self.src_rank, self._end("src_rank"))
        of_one_size("reduce", source, [*others, to])
        for block, part in blocks_of(tb, tb_group):
            made = Operation("rre", (caller(),), (source, *others), (to,), (self,), self.channel_type, part=part, reduce=how)
            self._record(block, made)


class PortChannel(BetweenRanks):
    """A channel through a port, as between nodes: a proxy moves the data. Each call makes another channel: keep one to use it again."""

    channel_type = ChannelType.port

    def signal(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Signals the other rank. `sync` is another word for `data_sync`."""
        self._synchronise("signal", tb, data_sync, sync, iter_context)

    def wait(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits for the next signal of the other rank. `sync` is another word for `data_sync`."""
        self._synchronise("wait", tb, data_sync, sync, iter_context)

    def flush(
        self,
        tb: int,
        data_sync: SyncType | str = SyncType.both,
        *,
        sync: SyncType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits until what the channel was told to put is read. In MACO the next statement of the block does so anyway."""
        self._synchronise("flush", tb, data_sync, sync, iter_context)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, *, iter_context: LoopIterationContext | None = None) -> None:
        """Copies chunks of the rank's own to the other."""
        self._put("put", "put", dst_chunk, src_chunk, tb, None, iter_context)

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, *, iter_context: LoopIterationContext | None = None) -> None:
        """`put`, then `signal`."""
        self._put("put_with_signal", "pws", dst_chunk, src_chunk, tb, None, iter_context)

    def put_with_signal_and_flush(
        self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, *, iter_context: LoopIterationContext | None = None
    ) -> None:
        """`put`, then `signal`, then `flush`."""
        self._put("put_with_signal_and_flush", "pwsf", dst_chunk, src_chunk, tb, None, iter_context)

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, *, iter_context: LoopIterationContext | None = None) -> None:
        """Moves chunks of the rank's own into the other's scratch memory as packets; packets in scratch memory as they are."""
        self._put("put_packets", "ppkt", dst_chunk, src_chunk, tb, None, iter_context)

    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits for packets in the rank's scratch memory and copies them into the other's."""
        self._put("read_put_packets", "rppkt", dst_chunk, src_chunk, tb, tb_group, iter_context)


class Channel:
    """`Channel(dst_rank, src_rank, channel_type)` makes a `MemoryChannel` or a `PortChannel`."""

    memory: ClassVar = ChannelType.memory
    port: ClassVar = ChannelType.port
    switch: ClassVar = ChannelType.switch

    def __new__(cls, dst_rank: SupportsIndex, src_rank: SupportsIndex, channel_type: ChannelType | str = ChannelType.memory) -> Any:
        kind = a_word(channel_type, ChannelType, "channel_type")
        if kind is ChannelType.memory:
            return MemoryChannel(dst_rank, src_rank)
        if kind is ChannelType.port:
            return PortChannel(dst_rank, src_rank)
        if kind is ChannelType.switch:
            raise wrong("a switch channel is of a group of ranks, not of two ends: SwitchChannel(rank_list, buffer_type)")
        raise wrong("channel_type must be memory or port")


class SwitchChannel:
    """One buffer of each rank of a group, which a switch reduces or writes at once.

    MACO does what it says with puts and reductions over the ranks of the group. In which order a switch adds up nobody knows; MACO adds in
    the order of ranks. Each call makes another channel.
    """

    channel_type: ClassVar = ChannelType.switch

    def __init__(
        self, rank_list: Iterable[SupportsIndex], buffer_type: BufferType | str | None = None, *, buffer: BufferType | str | None = None
    ) -> None:
        self._program = current()
        if (buffer_type is None) == (buffer is None):
            raise wrong("a switch channel is of a buffer: buffer_type, or buffer, is BufferType.input, output or scratch")
        self.buffer_type = a_word(buffer if buffer_type is None else buffer_type, BufferType, "buffer_type")
        self.rank_list = [a_rank(rank, self._program.num_ranks, "an entry of rank_list") for rank in rank_list]
        if not self.rank_list:
            raise wrong("a switch channel must be of one rank at least")
        for i, rank in enumerate(self.rank_list):
            if rank in self.rank_list[:i]:
                raise wrong(f"rank {rank} is in the group twice")
        self.channel_ids = self._program._switch_channel(self)

    def at_rank(self, rank: SupportsIndex) -> SwitchChannelRankView:
        """A view of this channel whose operations rank `rank` does."""
        return SwitchChannelRankView(self, self._member(rank))

    def reduce(
        self,
        rank: SupportsIndex,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int | None,
        reduce_op: ReduceOperationType | str = ReduceOperationType.sum,
        *,
        op: ReduceOperationType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Rank `rank` reduces `size` chunks of all buffers, from number `buffer_offset` on, into its `dst_chunk`."""
        in_loop(iter_context)
        number = self._member(rank)
        how = a_word(reduce_op if op is None else op, ReduceOperationType, "reduce_op" if op is None else "op")
        to = a_chunk(dst_chunk, "dst_chunk", number, "which reduces")
        group = self._chunks(buffer_offset, size, number)
        of_one_size("reduce", group[0], [to])
        self._record(number, tb, Operation("glre", (caller(),), tuple(group), (to,), (self,), self.channel_type, reduce=how))

    def broadcast(
        self,
        rank: SupportsIndex,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int | None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Rank `rank` writes its `src_chunk` to all buffers, at `size` chunks from number `buffer_offset` on."""
        self._store("broadcast", "gstore", rank, src_chunk, buffer_offset, size, tb, iter_context)

    def broadcast_packets(
        self,
        rank: SupportsIndex,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """As `broadcast`, of packets in scratch memory to scratch memory."""
        if self.buffer_type is not BufferType.scratch:
            raise wrong(f"packets of 'broadcast_packets' must be in scratch memory, but the channel is of the {self.buffer_type.name}")
        self._store("broadcast_packets", "gstorepkt", rank, src_chunk, buffer_offset, size, tb, iter_context)

    def group_load_reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk | None = None,
        tb: int | None = None,
        op: ReduceOperationType | str = ReduceOperationType.sum,
        *,
        rank: SupportsIndex | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`reduce`; into the same chunks of the rank's own buffer if no `dst_chunk` is given.

        `rank` may be left out in a loop in which one rank does all that stands before.
        """
        number = self._doer(rank, "group_load_reduce")
        to = self._own(number, buffer_offset, size) if dst_chunk is None else dst_chunk
        self.reduce(number, buffer_offset, size, to, tb, op, iter_context=iter_context)

    def group_store(
        self,
        src_chunk: Chunk | int,
        buffer_offset: int | None = None,
        size: int = 1,
        tb: int | None = None,
        *,
        rank: SupportsIndex | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`broadcast`; with a number in place of `src_chunk` it is of these chunks of the rank's own buffer, and to the same of all.

        `rank` may be left out in a loop in which one rank does all that stands before.
        """
        number = self._doer(rank, "group_store")
        if not isinstance(src_chunk, Chunk):
            if buffer_offset is not None:
                raise TypeError(f"src_chunk is a chunk, a slice of a buffer such as buffer[0:1], not {type(src_chunk).__name__}")
            buffer_offset = src_chunk
            src_chunk = self._own(number, buffer_offset, size)
        elif buffer_offset is None:
            raise wrong("group_store() needs a buffer_offset: where it writes")
        self.broadcast(number, src_chunk, buffer_offset, size, tb, iter_context=iter_context)

    # ---- inside

    def _member(self, rank: Any) -> int:
        number = a_rank(rank, self._program.num_ranks, "this")
        if number not in self.rank_list:
            raise wrong(f"rank {number} isn't in the channel's group of {', '.join(map(str, self.rank_list))}")
        return number

    def _doer(self, rank: Any, method: str) -> int:
        if rank is not None:
            return self._member(rank)
        loop = current()._loop
        ranks = loop._ranks() if loop is not None else set()
        if len(ranks) != 1:
            raise wrong(f"which rank does it? channel.at_rank(rank).{method}(...) says so")
        return self._member(ranks.pop())

    def _own(self, rank: int, buffer_offset: int, size: int) -> Chunk:
        return Chunk(rank, self.buffer_type, a_number(buffer_offset, "buffer_offset", 0), a_number(size, "size", 1))

    def _chunks(self, buffer_offset: int, size: int, first: int) -> list[Chunk]:
        """The chunks at this place on all ranks of the group, rank `first` first."""
        at = self.rank_list.index(first)
        found = [self._own(rank, buffer_offset, size) for rank in self.rank_list[at:] + self.rank_list[:at]]
        # Scratch memory of other ranks may still be to come.
        there = found if self.buffer_type is not BufferType.scratch else found[:1]
        return [a_chunk(chunk, "the group's chunk", None) for chunk in there] + found[len(there) :]

    def _store(self, method: str, name: str, rank: Any, source: Any, buffer_offset: int, size: int, tb: Any, iter_context: Any) -> None:
        in_loop(iter_context)
        number = self._member(rank)
        source = a_chunk(source, "src_chunk", number, "which writes")
        if name == "gstorepkt":
            in_scratch(method, source)
        group = self._chunks(buffer_offset, size, number)
        of_one_size(method, group[0], [source])
        self._record(number, tb, Operation(name, (caller(),), (source,), tuple(group), (self,), self.channel_type))

    def _record(self, rank: int, tb: Any, operation: Operation) -> None:
        program = current()
        if program is not self._program:
            raise wrong(f"this channel is of another program, '{self._program.name}'")
        program._record(rank, a_block(tb), operation)

    def __repr__(self) -> str:
        return f"SwitchChannel({self.rank_list}, {self.buffer_type})"


class SwitchChannelRankView:
    """A switch channel as one rank of its group uses it."""

    def __init__(self, channel: SwitchChannel, rank: int) -> None:
        self._channel = channel
        self._rank = rank

    def reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int,
        reduce_op: ReduceOperationType | str = ReduceOperationType.sum,
        *,
        op: ReduceOperationType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`SwitchChannel.reduce` of this rank."""
        self._channel.reduce(self._rank, buffer_offset, size, dst_chunk, tb, reduce_op, op=op, iter_context=iter_context)

    def broadcast(
        self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int, *, iter_context: LoopIterationContext | None = None
    ) -> None:
        """`SwitchChannel.broadcast` of this rank."""
        self._channel.broadcast(self._rank, src_chunk, buffer_offset, size, tb, iter_context=iter_context)

    def broadcast_packets(
        self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int, *, iter_context: LoopIterationContext | None = None
    ) -> None:
        """`SwitchChannel.broadcast_packets` of this rank."""
        self._channel.broadcast_packets(self._rank, src_chunk, buffer_offset, size, tb, iter_context=iter_context)

    def group_load_reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk | None = None,
        tb: int | None = None,
        op: ReduceOperationType | str = ReduceOperationType.sum,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`SwitchChannel.group_load_reduce` of this rank."""
        self._channel.group_load_reduce(buffer_offset, size, dst_chunk, tb, op, rank=self._rank, iter_context=iter_context)

    def group_store(
        self,
        src_chunk: Chunk | int,
        buffer_offset: int | None = None,
        size: int = 1,
        tb: int | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """`SwitchChannel.group_store` of this rank."""
        self._channel.group_store(src_chunk, buffer_offset, size, tb, rank=self._rank, iter_context=iter_context)
