"""The execution plan of a program, as MSCCL++'s executor and MACO's import read it (schema of versions 0.8 to 0.9)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._operations import PUTS, SIGNALS, WAITS, InPlace, Operation, fused, places, synced
from ._recording import Where
from .types import BufferType, ChannelType, Chunk

if TYPE_CHECKING:
    from .program import CollectiveProgram


class Plan:
    """A plan, with the lines of the caller's Python that its operations come from.

    `tree` is what its JSON says. `statements[rank][block]` are the lines of the statements that MACO makes of it.
    """

    def __init__(self, program: CollectiveProgram) -> None:
        self._program = program
        self._instances = program.instances
        self._lines: dict[int, list[list[Where]]] = {}  # by id of a list of operations: those of its entries
        collective = program.collective
        inplace = InPlace(
            collective.inplace,
            collective.chunks(BufferType.input) * self._instances,
            collective.chunks(BufferType.output) * self._instances,
        )
        self.statements: list[list[list[Where]]] = []
        gpus = []
        for rank in range(program.num_ranks):
            self.statements.append([])
            gpus.append(self._gpu(rank, inplace))
        self.tree: dict[str, Any] = {
            "name": program.name,
            "collective": collective.name,
            "protocol": program.protocol,
            "inplace": collective.inplace,
            "reuse_resources": program.reuse_resources,
            "gpus": gpus,
            "num_threads_per_block": program.num_threads_per_block,
            "use_double_scratch_buffer": program.use_double_scratch_buffer,
            "buffer_alignment": program.buffer_alignment,
            "min_message_size": program.min_message_size,
            "max_message_size": program.max_message_size,
        }

    def text_by_lines(self) -> tuple[str, dict[int, Where]]:
        """JSON with each operation on a line of its own, and the caller's line for each of these (counted from 1)."""
        lines: list[str] = [""]
        found: dict[int, Where] = {}

        def write(value: Any) -> None:
            if isinstance(value, dict):
                for i, (key, one) in enumerate(value.items()):
                    lines[-1] += ("{" if i == 0 else ", ") + json.dumps(key) + ": "
                    write(one)
                lines[-1] += "}" if value else "{}"
            elif isinstance(value, list):
                lines[-1] += "["
                wheres = self._lines.get(id(value))
                for i, one in enumerate(value):
                    lines[-1] += ", " if i else ""
                    if wheres is not None:
                        lines.append("")
                        found[len(lines)] = wheres[i][0]
                    write(one)
                if wheres is not None:
                    lines.append("")
                lines[-1] += "]"
            else:
                lines[-1] += json.dumps(value)

        write(self.tree)
        return "\n".join(lines), found

    # ---- ranks

    def _gpu(self, rank: int, inplace: InPlace) -> dict[str, Any]:
        program, n = self._program, self._instances
        remote = _Numbers()  # (rank, buffer)
        reached: dict[tuple[int, BufferType], set[ChannelType]] = {}
        blocks = program._blocks[rank]
        threadblocks = []
        for block in range(max(blocks, default=-1) + 1):
            operations: Sequence[Operation] = blocks.get(block, ())
            if program.instr_fusion:
                operations = fused(operations)
            with_waits = synced(operations, program.auto_sync)
            for instance in range(n):
                made = [self._shifted(one, instance) for one in with_waits]
                self.statements[rank].append([place for one in made for place in places(one, rank, inplace)])
                threadblocks.append(_Block(self, rank, block * n + instance, instance, remote, reached).tree(made))
        channels: list[dict[str, Any]] = [
            {"channel_type": str(kind), "connected_to": [one.dst_rank for one in ends for _ in range(n)]}
            for kind, ends in program._channels[rank].items()
        ]
        channels += [
            {
                "channel_type": "switch",
                "buffer_type": str(one.buffer_type),
                "rank_groups": [{"size": len(one.rank_list), "ranks": one.rank_list}],
            }
            for one in program._switches[rank]
            for _ in range(n)
        ]
        return {
            "id": rank,
            "input_chunks": program.collective.chunks(BufferType.input) * n,
            "output_chunks": program.collective.chunks(BufferType.output) * n,
            "scratch_chunks": program._scratch[rank] * n,
            "threadblocks": threadblocks,
            "channels": channels,
            "remote_buffers": [
                {"rank": owner, "type": str(buffer), "access_channel_types": sorted(str(kind) for kind in reached[owner, buffer])}
                for owner, buffer in remote.order
            ],
            "semaphores": [{"init_value": one.initial_value} for one in program._semaphores[rank] for _ in range(n)],
        }

    def _shifted(self, operation: Operation, instance: int) -> Operation:
        """The operation on this instance's share of the chunks."""
        n = self._instances
        if n == 1:
            return operation

        def shifted(chunk: Chunk) -> Chunk:
            return replace(chunk, index=chunk.index * n + instance * chunk.size)

        return replace(
            operation,
            sources=tuple(map(shifted, operation.sources)),
            targets=tuple(map(shifted, operation.targets)),
            body=tuple(self._shifted(one, instance) for one in operation.body),
        )


class _Numbers:
    """Things in the order of their first use."""

    def __init__(self) -> None:
        self.order: dict[Any, int] = {}

    def __getitem__(self, key: Any) -> int:
        return self.order.setdefault(key, len(self.order))


class _Block:
    """A thread block, and what its operations refer to by numbers."""

    def __init__(
        self, plan: Plan, rank: int, number: int, instance: int, remote: _Numbers, reached: dict[tuple[int, BufferType], set[ChannelType]]
    ) -> None:
        self._plan, self._rank, self._number, self._instance = plan, rank, number, instance
        self._remote, self._reached = remote, reached
        self._channels: dict[ChannelType, _Numbers] = {}
        self._refs: dict[ChannelType, _Numbers] = {}

    def tree(self, operations: Sequence[Operation]) -> dict[str, Any]:
        return {
            "id": self._number,
            "ops": self._list(operations),
            "channels": [{"channel_type": str(kind), "channel_ids": list(ids.order)} for kind, ids in self._channels.items()],
            "remote_buffer_refs": [
                {"access_channel_type": str(kind), "remote_buffer_ids": list(ids.order)} for kind, ids in self._refs.items()
            ],
        }

    def _list(self, operations: Sequence[Operation]) -> list[dict[str, Any]]:
        made = [self._operation(one) for one in operations]
        self._plan._lines[id(made)] = [list(one.wheres) for one in operations]
        return made

    def _operation(self, operation: Operation) -> dict[str, Any]:
        name, kind = operation.name, operation.kind
        made: dict[str, Any] = {"name": name}
        if name == "pipeline":
            unit, chunks = operation.loop
            return {**made, "iter_context": {"unit_size": unit, "num_chunks": chunks}, "ops": self._list(operation.body)}
        if name == "barrier":
            number = self._plan._program._barriers[self._rank][operation.blocks]
            return {**made, "barrier_id": self._own(number), "num_threadblocks": len(operation.blocks)}
        if name.startswith("sem_"):
            return {**made, "semaphore_ids": [self._own(one.id) for one in operation.semaphores]}
        if kind is ChannelType.switch:
            return {**made, **self._group(operation)}
        ids = [self._channel(one) for one in operation.channels]
        if operation.sources:
            made["src_buff"] = [self._chunk(one, kind) for one in operation.sources]
            made["dst_buff"] = [self._chunk(one, kind) for one in operation.targets]
        if name in (*SIGNALS, *WAITS, "flush", "get") or (name in PUTS and kind is ChannelType.port):
            made["channel_ids"] = ids
        if kind is not ChannelType.none:
            made["channel_type"] = str(kind)
        if operation.reduce is not None:
            made["reduce_op"] = str(operation.reduce)
        if operation.part is not None:
            made["tbg_info"] = {"tb_id": operation.part[0], "tbg_size": operation.part[1]}
        return made

    def _group(self, operation: Operation) -> dict[str, Any]:
        number = self._channel(operation.channels[0])
        reduces = {} if operation.reduce is None else {"reduce_op": str(operation.reduce)}

        def whole(chunk: Chunk) -> dict[str, Any]:
            return {"rank": chunk.rank, "type": str(chunk.buffer), "index": chunk.index, "size": chunk.size}

        def all_of(chunks: Sequence[Chunk]) -> dict[str, Any]:
            return {"switch_channel_id": number, "index": chunks[0].index, "size": chunks[0].size}

        source, target = operation.sources[0], operation.targets[0]
        if operation.name == "glre":
            return {
                "buffer_type": str(source.buffer),
                "buffer_offset": source.index,
                "size": source.size,
                "dst_chunk": whole(target),
                "channel_ids": [number],
                "channel_type": "switch",
                **reduces,
            }
        from_all = operation.name == "glres"
        return {
            "src_buff": [all_of(operation.sources) if from_all else whole(source)],
            "dst_buff": [all_of(operation.targets)],
            "channel_type": "switch",
            **reduces,
        }

    def _own(self, number: int) -> int:
        """The number of this instance's own copy of thing `number`, of which each instance has one."""
        return number * self._plan._instances + self._instance

    def _channel(self, channel: Any) -> int:
        number = channel.channel_ids[self._rank] if channel.channel_type is ChannelType.switch else channel.channel_id
        return self._channels.setdefault(channel.channel_type, _Numbers())[self._own(number)]

    def _chunk(self, chunk: Chunk, kind: ChannelType) -> dict[str, Any]:
        at = {"index": chunk.index, "size": chunk.size}
        if chunk.rank == self._rank:
            return {"type": str(chunk.buffer), **at}
        memory = (chunk.rank, chunk.buffer)
        self._reached.setdefault(memory, set()).add(kind)
        return {"buffer_id": self._refs.setdefault(kind, _Numbers())[self._remote[memory]], **at}
