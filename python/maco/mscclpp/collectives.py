"""The collectives that a program may be of, and how many chunks a rank's input and output have in each.

`chunk_factor` says how finely data is cut: a rank's block has as many chunks. With `inplace` the smaller of input and output is the rank's
own block of the larger, and both are one where they are of one size.
"""

from __future__ import annotations

from ._recording import a_bool, a_number, a_rank
from .types import BufferType

__all__ = ["AllGather", "AllReduce", "AllToAll", "Broadcast", "Collective", "ReduceScatter", "SendRecv", "TestCollective"]


class Collective:
    """What a collective moves. The base of those that there are, and of those of the caller's, which MACO can't run."""

    name = "custom"

    def __init__(self, num_ranks: int, chunk_factor: int = 1, inplace: bool = False) -> None:
        self.num_ranks = a_number(num_ranks, "num_ranks", 1, 64)
        self.chunk_factor = a_number(chunk_factor, "chunk_factor", 1, 1 << 16)
        self.inplace = a_bool(inplace, "inplace")

    def chunks(self, buffer: BufferType) -> int:
        """How many chunks a rank's input or output has."""
        raise NotImplementedError(f"{type(self).__name__} doesn't say how many chunks its buffers have: define chunks(buffer)")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_ranks={self.num_ranks}, chunk_factor={self.chunk_factor}, inplace={self.inplace})"


class AllReduce(Collective):
    """The reduction of all ranks' inputs, on every rank. Input and output have num_ranks * chunk_factor chunks."""

    name = "allreduce"

    def chunks(self, buffer: BufferType) -> int:
        return self.num_ranks * self.chunk_factor


class AllGather(Collective):
    """All ranks' inputs, on every rank: chunk_factor chunks of input, num_ranks * chunk_factor of output."""

    name = "allgather"

    def chunks(self, buffer: BufferType) -> int:
        return self.chunk_factor if buffer is BufferType.input else self.num_ranks * self.chunk_factor


class ReduceScatter(Collective):
    """Rank r gets block r of the reduction: num_ranks * chunk_factor chunks of input, chunk_factor of output."""

    name = "reducescatter"

    def chunks(self, buffer: BufferType) -> int:
        return self.chunk_factor if buffer is BufferType.output else self.num_ranks * self.chunk_factor


class AllToAll(Collective):
    """Block i of rank r becomes block r of rank i. Input and output have num_ranks * chunk_factor chunks."""

    name = "alltoall"

    def chunks(self, buffer: BufferType) -> int:
        return self.num_ranks * self.chunk_factor


class Broadcast(Collective):
    """The input of rank `root`, on every rank. Input and output have chunk_factor chunks."""

    name = "broadcast"

    def __init__(self, num_ranks: int, chunk_factor: int = 1, inplace: bool = False, root: int = 0) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.root = a_rank(root, self.num_ranks, "root")

    def chunks(self, buffer: BufferType) -> int:
        return self.chunk_factor


class SendRecv(Collective):
    """Each rank's input becomes the output of the next. MACO can give its plan, but runs it only as the op `ring_shift`."""

    name = "sendrecv"

    def chunks(self, buffer: BufferType) -> int:
        return self.chunk_factor


class TestCollective(Collective):
    """Buffers of any sizes. It promises nothing, so MACO can give its plan, but has nothing to prove or run."""

    __test__ = False  # to pytest it isn't a test
    name = "test"

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks)
        self.input_size = a_number(input_size, "input_size", 0, 1 << 16)
        self.output_size = a_number(output_size, "output_size", 0, 1 << 16)

    def chunks(self, buffer: BufferType) -> int:
        return self.input_size if buffer is BufferType.input else self.output_size
