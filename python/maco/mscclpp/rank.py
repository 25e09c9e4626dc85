"""Ranks: their buffers, and what they do by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, SupportsIndex

from . import semaphore
from ._operations import Operation
from ._recording import (
    a_bool,
    a_chunk,
    a_number,
    a_rank,
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
from .semaphore import Semaphore
from .thread_block_group import ThreadBlockGroup
from .types import BufferType, Chunk, ReduceOperationType, SyncType

__all__ = ["BaseBuffer", "Buffer", "BufferType", "Rank", "ReduceOperationType", "Semaphore", "SyncType", "ThreadBlockGroup"]


class BaseBuffer:
    """`size` chunks of a rank's memory; its slices are chunks. Those of input and output come from `Rank`."""

    def __init__(self, rank: int, buffer_type: BufferType, offset: int, size: int) -> None:
        self.rank = rank
        self.buffer_type = buffer_type
        self.offset = offset
        """Which chunk of the rank's buffer the first is."""
        self.size = offset + size
        """Which chunk of the rank's buffer comes behind the last."""

    def __len__(self) -> int:
        return self.size - self.offset

    def __getitem__(self, key: slice) -> Chunk:
        """The chunks from `start` up to `stop`, which is excluded."""
        if not isinstance(key, slice):
            raise TypeError(f"a chunk is a slice of a buffer, such as buffer[0:1], not buffer[{key!r}]")
        if key.step not in (None, 1):
            raise wrong(f"chunks follow each other: a step of {key.step} can't be had")
        start = 0 if key.start is None else a_number(key.start, "the first chunk", 0)
        stop = len(self) if key.stop is None else a_number(key.stop, "the end of the chunks", 0)
        name = self.buffer_type.name
        if start >= stop:
            raise wrong(f"{name}[{start}:{stop}] of rank {self.rank} has no chunk")
        if stop > len(self):
            raise wrong(f"{name}[{start}:{stop}] of rank {self.rank} is past the end of the buffer, which has {len(self)} chunks")
        return Chunk(self.rank, self.buffer_type, self.offset + start, stop - start)

    def __repr__(self) -> str:
        return f"<maco.mscclpp buffer {self.buffer_type.name}[{self.offset}:{self.size}] of rank {self.rank}>"


class Buffer(BaseBuffer):
    """`size` chunks of new scratch memory of a rank, each as large as one of input and output."""

    input: ClassVar = BufferType.input
    output: ClassVar = BufferType.output
    scratch: ClassVar = BufferType.scratch

    def __init__(self, rank: SupportsIndex, size: int) -> None:
        program = current()
        number = a_rank(rank, program.num_ranks, "the rank of a buffer")
        size = a_number(size, "the size of a buffer", 1, 1 << 16)
        super().__init__(number, BufferType.scratch, program._scratch_of(number, size), size)


class Rank:
    """One of the ranks of the program, and what it does within its own memory."""

    Semaphore: ClassVar = semaphore.Semaphore

    def __init__(self, rank: SupportsIndex) -> None:
        self._program = current()
        self.rank = a_rank(rank, self._program.num_ranks, "this")

    def get_input_buffer(self) -> BaseBuffer:
        """The rank's input buffer."""
        return BaseBuffer(self.rank, BufferType.input, 0, self._program._extent(self.rank, BufferType.input))

    def get_output_buffer(self) -> BaseBuffer:
        """The rank's output buffer."""
        return BaseBuffer(self.rank, BufferType.output, 0, self._program._extent(self.rank, BufferType.output))

    def copy(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Copies chunks of the rank's own."""
        self._copy("copy", "copy", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def copy_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Copies chunks into scratch memory as packets, which show themselves to whoever reads them."""
        self._copy("copy_packets", "cpkt", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def unpack_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Waits for packets in scratch memory and copies what they carry."""
        self._copy("unpack_packets", "upkt", dst_chunk, src_chunk, tb, tb_group, iter_context)

    def _copy(self, method: str, name: str, to: Chunk, source: Chunk, tb: Any, tb_group: Any, iter_context: Any) -> None:
        in_loop(iter_context)
        to = a_chunk(to, "dst_chunk", self.rank, f"that of {method}()")
        source = a_chunk(source, "src_chunk", self.rank, f"that of {method}()")
        of_one_size(method, source, [to])
        if name != "copy":
            in_scratch(method, to if name == "cpkt" else source)
        for block, part in blocks_of(tb, tb_group):
            self._here()._record(self.rank, block, Operation(name, (caller(),), (source,), (to,), part=part))

    def reduce(
        self,
        src_chunk: Chunk,
        other_chunks: Chunk | Iterable[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType | str = ReduceOperationType.sum,
        packet: bool = False,
        *,
        op: ReduceOperationType | str | None = None,
        iter_context: LoopIterationContext | None = None,
    ) -> None:
        """Reduces chunks of the rank's own into `dst_chunk`, `src_chunk` if it isn't given.

        With `packet` the `other_chunks` are packets in scratch memory, which are waited for. `op` is another word for `reduce_op`.
        """
        in_loop(iter_context)
        a_bool(packet, "packet")
        how = a_word(reduce_op if op is None else op, ReduceOperationType, "reduce_op" if op is None else "op")
        source = a_chunk(src_chunk, "src_chunk", self.rank, "that of reduce()")
        others = chunks_of(other_chunks, "other_chunks", self.rank, "that of reduce()")
        to = source if dst_chunk is None else a_chunk(dst_chunk, "dst_chunk", self.rank, "that of reduce()")
        of_one_size("reduce", source, [*others, to])
        if packet:
            for one in others:
                in_scratch("reduce", one)
        for block, part in blocks_of(tb, tb_group):
            name = "repkt" if packet else "re"
            self._here()._record(self.rank, block, Operation(name, (caller(),), (source, *others), (to,), part=part, reduce=how))

    def barrier(self, tb_list: Iterable[int]) -> None:
        """These thread blocks of the rank wait for each other."""
        group = ThreadBlockGroup(tb_list)
        operation = Operation("barrier", (caller(),), blocks=tuple(group.tb_list))
        if len(group.tb_list) == 1:
            operation = Operation("nop", operation.wheres)
        for block in group.tb_list:
            self._here()._record(self.rank, block, operation)

    def _here(self) -> Any:
        program = current()
        if program is not self._program:
            raise wrong(f"this is rank {self.rank} of another program, '{self._program.name}'")
        return program

    def __index__(self) -> int:
        return self.rank

    def __eq__(self, other: object) -> bool:
        return self.rank == other.rank and self._program is other._program if isinstance(other, Rank) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rank)

    def __repr__(self) -> str:
        return f"Rank({self.rank})"
