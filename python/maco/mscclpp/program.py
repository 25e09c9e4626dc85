"""Programs: collectives, written rank by rank and chunk by chunk."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from ..dtypes import DTypeLike, as_dtype
from ..errors import Diagnostic, GraphError
from ._operations import SIGNALS, WAITS, Operation
from ._places import Places, places_of
from ._plan import Plan
from ._recording import MAX_BLOCKS, Where, a_bool, a_number, a_word, caller, closed, opened, shown, wrong
from .channel import Channel, MemoryChannel, PortChannel, SwitchChannel
from .collectives import AllGather, AllReduce, AllToAll, Broadcast, Collective, ReduceScatter, SendRecv, TestCollective
from .types import BufferType, ChannelType, ReduceOperationType, ReplicationPolicy, SyncType
from .utils import AlgoSpec

if TYPE_CHECKING:
    from ..graph import Graph
    from .loop import LoopIterationContext
    from .semaphore import Semaphore

# MSCCL++'s module of this name has these, too.
__all__ = [
    "AlgoSpec",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Broadcast",
    "BufferType",
    "Channel",
    "ChannelType",
    "Collective",
    "CollectiveProgram",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "SendRecv",
    "SwitchChannel",
    "SyncType",
    "TestCollective",
]

PROTOCOLS = ("Simple", "LL")
_OPS = {"reducescatter": "reduce_scatter"}  # graphs' names, where they aren't those of plans
_NO_LIMIT = 2**64 - 1
_ORDERED = re.compile(r"\bblock = |^  (signal|wait|acquire|release|barrier)\(", re.M)  # a text whose statements are ordered by their author


@dataclass(frozen=True)
class _Made:
    """What the import makes of the plan."""

    text: str  # of the collective
    name: str
    reduce: str  # "" where nothing is reduced
    places: Places


class CollectiveProgram:
    """A collective that ranks do operation by operation: `with CollectiveProgram(...):` stands around them.

    `collective` says what it promises (`AllReduce(num_ranks, chunk_factor, inplace)` and the like) and `num_ranks` of how many ranks. In a
    graph of as many ranks it is the `algorithm` of an op: `g.allreduce(x, algorithm=program)`. What it does is proved then: that it keeps
    the promise, without races and deadlock. `check` does so at once, `text` gives the collective in MACO's language, `json` the execution
    plan that MSCCL++ runs.

    - `instances`: how many copies share the chunks, each with thread blocks, channels and semaphores of its own; `replication_policy`
      `none`, in which all would do the same, goes with one instance only.
    - `protocol`: "Simple" or "LL". Packets need "LL".
    - `instr_fusion`: operations that follow each other are made one where one can do both, sums of many chunks without rounding between.
    - `min_message_size`, `max_message_size`: how many bytes of input a rank may have. Graphs that use it for others are refused.
    - `auto_sync`, `num_threads_per_block`, `reuse_resources`, `use_double_scratch_buffer`, `buffer_alignment`: checked, and written into
      the plan, for MSCCL++'s executor. MACO has tasks, memory and synchronisation of its own.

    Mistakes are a `maco.GraphError` with the caller's line; wrong types a TypeError.
    """

    def __init__(
        self,
        name: str,
        collective: Collective,
        num_ranks: int,
        instances: int = 1,
        protocol: str = "Simple",
        instr_fusion: bool = True,
        auto_sync: bool = True,
        replication_policy: ReplicationPolicy | str = ReplicationPolicy.interleaved,
        reuse_resources: bool = False,
        num_threads_per_block: int = 1024,
        use_double_scratch_buffer: bool = False,
        buffer_alignment: int = 16,
        min_message_size: int = 0,
        max_message_size: int = _NO_LIMIT,
    ) -> None:
        self._where = caller()
        if not isinstance(name, str):
            raise TypeError(f"the name of a program is a string, not {type(name).__name__}")
        if not isinstance(collective, Collective):
            raise TypeError(f"collective is one of AllReduce, AllGather, ReduceScatter, AllToAll and Broadcast, not {collective!r}")
        self.name = name
        self.collective = collective
        self.num_ranks = a_number(num_ranks, "num_ranks", 1, 64)
        if collective.num_ranks != self.num_ranks:
            raise wrong(f"the program is of {self.num_ranks} ranks, but its collective of {collective.num_ranks}")
        self.instances = a_number(instances, "instances", 1, MAX_BLOCKS)
        if protocol not in PROTOCOLS:
            raise wrong(f"protocol must be 'Simple' or 'LL', found {protocol!r}")
        self.protocol = protocol
        self.instr_fusion = a_bool(instr_fusion, "instr_fusion")
        self.auto_sync = a_bool(auto_sync, "auto_sync")
        self.replication_policy = a_word(replication_policy, ReplicationPolicy, "replication_policy")
        if self.replication_policy is ReplicationPolicy.none and self.instances > 1:
            raise wrong(f"with replication_policy none all {self.instances} instances would move the same chunks: take interleaved")
        self.reuse_resources = a_bool(reuse_resources, "reuse_resources")
        self.num_threads_per_block = a_number(num_threads_per_block, "num_threads_per_block", 1, 1024)
        self.use_double_scratch_buffer = a_bool(use_double_scratch_buffer, "use_double_scratch_buffer")
        self.buffer_alignment = a_number(buffer_alignment, "buffer_alignment", 1)
        self.min_message_size = a_number(min_message_size, "min_message_size", 0, _NO_LIMIT)
        self.max_message_size = a_number(max_message_size, "max_message_size", 0, _NO_LIMIT)
        if self.min_message_size > self.max_message_size:
            raise wrong(f"min_message_size is {self.min_message_size}, more than max_message_size, {self.max_message_size}")
        ranks = range(self.num_ranks)
        self._loop: LoopIterationContext | None = None
        self._blocks: list[dict[int, list[Operation]]] = [{} for _ in ranks]
        self._channels: list[dict[ChannelType, list[Any]]] = [{} for _ in ranks]
        self._switches: list[list[SwitchChannel]] = [[] for _ in ranks]
        self._semaphores: list[list[Semaphore]] = [[] for _ in ranks]
        self._barriers: list[dict[tuple[int, ...], int]] = [{} for _ in ranks]
        self._scratch = [0 for _ in ranks]
        self._made: _Made | None = None

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> CollectiveProgram:
        """A program of what `spec` says."""
        if not isinstance(spec, AlgoSpec):
            raise TypeError(f"from_spec() takes an AlgoSpec, not {type(spec).__name__}")
        made = cls(
            spec.name,
            spec.collective,
            spec.world_size,
            instances=spec.instances,
            protocol=spec.protocol,
            instr_fusion=spec.instr_fusion,
            auto_sync=spec.auto_sync,
            replication_policy=spec.replication_policy,
            reuse_resources=spec.reuse_resources,
            num_threads_per_block=spec.num_threads_per_block,
            use_double_scratch_buffer=spec.use_double_scratch_buffer,
            buffer_alignment=spec.buffer_alignment,
            min_message_size=spec.min_message_size,
            max_message_size=spec.max_message_size,
        )
        if a_bool(spec.in_place, "in_place") != spec.collective.inplace:
            raise wrong(f"in_place is {spec.in_place}, but the collective's inplace is {spec.collective.inplace}")
        node = a_number(spec.nranks_per_node, "nranks_per_node", 1, spec.world_size)
        if spec.world_size % node != 0:
            raise wrong(f"nranks_per_node is {node}, which doesn't divide world_size, {spec.world_size}")
        if not isinstance(spec.tags, Mapping):
            raise TypeError(f"tags is a dict of labels, not {type(spec.tags).__name__}")
        return made

    def __enter__(self) -> CollectiveProgram:
        opened(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop = None
        closed()

    def __repr__(self) -> str:
        return f"<maco.mscclpp.CollectiveProgram '{self.name}', {self.collective.name} of {self.num_ranks} ranks>"

    def __reduce__(self) -> Any:
        raise TypeError("a CollectiveProgram can't be pickled; its text() or json() can")

    # ---- what it is

    def json(self, *, indent: int | None = 2) -> str:
        """The execution plan, as MSCCL++'s executor reads it. Raises `maco.GraphError` where signals and waits don't meet."""
        self._closed_loop()
        self._check_signals()
        return json.dumps(Plan(self).tree, indent=indent)

    def to_json(self, indent: int | None = 2, **options: Any) -> str:
        """`json`, with further options of `json.dumps`."""
        self._closed_loop()
        self._check_signals()
        return json.dumps(Plan(self).tree, indent=indent, **options)

    def text(self) -> str:
        """The collective in MACO's language (docs/algorithms.md): the operations, with what ranks do alike written once.

        Raises `maco.GraphError` where an operation can't be had. Whether they keep the collective's promise `check` tells.
        """
        return self._imported().text

    @property
    def identifier(self) -> str:
        """What the text calls the collective: the name, with _ for what can't be in one."""
        return self._imported().name

    def graph(self, dtype: DTypeLike = "bf16", elements: int | None = None) -> Graph:
        """A graph that uses it: of input `x`, `elements` of it on each rank, comes output `y`.

        64 Ki elements, or a few more so that ranks' blocks are of one size, if `elements` isn't given.
        """
        from ..graph import Graph

        n = self.num_ranks
        count = -(-65536 // n) * n if elements is None else a_number(elements, "elements", 1)
        graph = Graph(self.identifier, n)
        x = graph.input("x", as_dtype(dtype), [count])
        arguments: dict[str, Any] = {}
        reduce = self._imported().reduce
        if reduce:
            arguments["reduce"] = reduce
        if isinstance(self.collective, Broadcast):
            arguments["root"] = self.collective.root
        op = getattr(graph, _OPS.get(self.collective.name, self.collective.name))
        graph.output("y", op(x, algorithm=self, **arguments))
        return graph

    def check(self, dtype: DTypeLike = "bf16") -> None:
        """Proves that it does what its collective promises, without races and deadlock, in every run.

        Raises `maco.GraphError`, whose diagnostics have the lines of the operations. `dtype` counts where ranks add up in different orders.
        """
        elements = None
        if self._has_limits:
            size, n = as_dtype(dtype).itemsize, self.num_ranks
            bytes_ = min(max(65536 * size, self.min_message_size), self.max_message_size)
            elements = max(bytes_ // size // n, 1) * n
            if elements * size < self.min_message_size:
                elements += n
        self.graph(dtype, elements).compile(target="cpu")

    # ---- what operations tell

    def _extent(self, rank: int, buffer: BufferType) -> int:
        return self._scratch[rank] if buffer is BufferType.scratch else self.collective.chunks(buffer)

    def _scratch_of(self, rank: int, size: int) -> int:
        """Where `size` more chunks of scratch memory begin."""
        self._made = None
        self._scratch[rank] += size
        return self._scratch[rank] - size

    def _channel(self, channel: Any) -> int:
        ends = self._channels[channel.src_rank].setdefault(channel.channel_type, [])
        ends.append(channel)
        self._made = None
        return len(ends) - 1

    def _switch_channel(self, channel: SwitchChannel) -> dict[int, int]:
        self._made = None
        for rank in channel.rank_list:
            self._switches[rank].append(channel)
        return {rank: len(self._switches[rank]) - 1 for rank in channel.rank_list}

    def _semaphore(self, one: Semaphore) -> int:
        self._made = None
        self._semaphores[one.rank].append(one)
        return len(self._semaphores[one.rank]) - 1

    def _record(self, rank: int, block: int, operation: Operation) -> None:
        """An operation, into the loop if one is open."""
        if "pkt" in operation.name and self.protocol != "LL":
            raise wrong("packets need a program of protocol 'LL'; this is of 'Simple'")
        if operation.name == "barrier":
            known = self._barriers[rank]
            known.setdefault(operation.blocks, len(known))
        if self._loop is None:
            self._add(rank, block, operation)
            return
        if "pkt" in operation.name:
            raise wrong("packets can't be in a loop: a packet is written once a launch")
        chunks = operation.targets[0].size if operation.targets else None
        parts = operation.part[1] if operation.part else 1
        if chunks is not None and chunks != self._loop.num_chunks * parts:
            wanted = f"num_chunks, {self._loop.num_chunks}" + (f", times the {parts} thread blocks of the group" if parts > 1 else "")
            raise wrong(f"chunks of an operation in a loop must be as many as its {wanted}: found {chunks}")
        self._loop._done.setdefault((rank, block), []).append(operation)

    def _add(self, rank: int, block: int, operation: Operation) -> None:
        self._made = None
        self._blocks[rank].setdefault(block, []).append(operation)

    # ---- inside

    def _closed_loop(self) -> None:
        if self._loop is not None:
            raise wrong("the loop is still open: its end is where what stands in it becomes part of the program")

    def _check_signals(self) -> None:
        """As many waits as signals between two ranks, through either kind of channels."""
        counts: dict[tuple[int, int, ChannelType], list[int]] = defaultdict(lambda: [0, 0])
        first: dict[tuple[int, int, ChannelType], Where] = {}

        def count(operation: Operation, rank: int) -> None:
            for one in operation.body:
                count(one, rank)
            waits = operation.name in WAITS
            if waits or operation.name in (*SIGNALS, "pws", "pwsf"):
                for channel, where in zip(operation.channels, operation.wheres, strict=True):
                    peer = channel.dst_rank  # type: ignore[union-attr]
                    key = (peer, rank, operation.kind) if waits else (rank, peer, operation.kind)
                    counts[key][waits] += 1
                    first.setdefault(key, where)

        for rank, blocks in enumerate(self._blocks):
            for operations in blocks.values():
                for operation in operations:
                    count(operation, rank)
        for (sender, receiver, kind), (signals, waits) in counts.items():
            if signals != waits:
                text = f"rank {sender} signals rank {receiver} {signals} times through {kind} channels, which waits {waits} times"
                raise wrong(text, first[sender, receiver, kind])

    def _imported(self) -> _Made:
        self._closed_loop()
        if self._made is None:
            self._made = self._import()
        return self._made

    def _import(self) -> _Made:
        name = self.collective.name
        if name == "sendrecv":
            raise wrong("MACO has no collective 'sendrecv' of chunks: the op ring_shift(x, by=1) does the same", self._where)
        if name not in ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast"):
            raise wrong(f"MACO has no collective '{name}', which promises nothing that could be proved: json() gives its plan", self._where)
        plan = Plan(self)
        text, lines = plan.text_by_lines()
        elements = self.num_ranks
        try:
            pointer = _native.call("maco_import_plan", _native.encoded(text, "the plan"), elements, as_dtype("bf16").value)
        except GraphError as error:
            raise self._placed(error, lines) from None
        whole = _native.taken_string(pointer)
        text, _, rest = whole.partition("\ngraph ")
        text = text.removesuffix("\n") + "\n"
        if not _ORDERED.search(text):
            # Else MACO would take the statements of all ranks to follow each other, and miss what nothing orders.
            text = text.removesuffix("}\n") + "  barrier(blocks = [0])\n}\n"
        head = re.match(r"collective (\w+)", text)
        reduce = re.search(r"\breduce = (\w+)", rest)
        root = re.search(r"\broot = (\d+)", rest)
        if isinstance(self.collective, Broadcast) and root and int(root.group(1)) != self.collective.root:
            raise wrong(f"the root is rank {self.collective.root}, but what is read is the input of rank {root.group(1)}", self._where)
        assert head is not None
        reduced = reduce.group(1) if reduce and re.search(r"= reduce\(", text) else ""
        return _Made(text, head.group(1), reduced, {1: [(0, self._where)], **places_of(text, plan.statements)})

    def _placed(self, error: GraphError, lines: dict[int, Where]) -> GraphError:
        """The import's complaint, with the caller's lines in place of the plan's."""

        def moved(one: Diagnostic) -> Diagnostic:
            where = lines.get(one.line, self._where)
            return Diagnostic(one.severity, where.file, where.line, 0, one.text, tuple(map(moved, one.notes)))

        found = tuple(map(moved, error.diagnostics)) or (Diagnostic("error", self._where.file, self._where.line, 0, error.message),)
        return GraphError(shown(found), diagnostics=found)

    # ---- in graphs

    @property
    def _has_limits(self) -> bool:
        return self.min_message_size > 0 or self.max_message_size < _NO_LIMIT

    def _used(self, graph: Graph, kind: str = "", attributes: Mapping[str, Any] | None = None) -> _Made:
        """For a graph, or an op of it: raises `maco.GraphError` where it is another collective."""
        if graph.world != self.num_ranks:
            raise wrong(f"the algorithm '{self.name}' is of {self.num_ranks} ranks, but the graph '{graph.name}' of {graph.world}")
        own = _OPS.get(self.collective.name, self.collective.name)
        made = self._imported()
        if attributes is None:
            return made
        if kind != own:
            raise wrong(f"the algorithm '{self.name}' is of {own}, not of '{kind}'")
        reduce = attributes.get("reduce") or "sum"
        # An average is a sum that is divided when all of it is there.
        if made.reduce and ("sum" if reduce == "avg" else reduce) != made.reduce:
            raise wrong(f"the algorithm '{self.name}' reduces by '{made.reduce}', but the op by '{reduce}': say reduce=\"{made.reduce}\"")
        root = attributes.get("root")
        if isinstance(self.collective, Broadcast) and isinstance(root, int) and root != self.collective.root:
            raise wrong(f"the algorithm '{self.name}' is of root {self.collective.root}, but the op of root {root}")
        return made
