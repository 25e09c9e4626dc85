"""MSCCL++'s language for collectives: who moves or reduces which chunk when, rank by rank, in Python.

    from maco.mscclpp import *

    with CollectiveProgram("gather", AllGather(2, 1, False), 2) as program:
        for rank in range(2):
            channel = MemoryChannel(1 - rank, rank)
            own = Rank(rank).get_input_buffer()[0:1]
            Rank(rank).copy(Rank(rank).get_output_buffer()[rank : rank + 1], own, tb=0)
            channel.put(Rank(1 - rank).get_output_buffer()[rank : rank + 1], own, tb=0)
            channel.signal(tb=0)
            channel.wait(tb=0)

    g = maco.Graph("g", 2)
    g.output("y", g.allgather(g.input("x", "bf16", [64, 128]), algorithm=program))

MACO proves what the program does and makes it part of its one kernel; see `CollectiveProgram`. Names and arguments are those of MSCCL++'s
`mscclpp.language`, whose modules have counterparts here (`maco.mscclpp.channel`, `.rank`, ...), and those of older releases where they
differ: `Loop.iteration`, `Channel`, `sync`, `iter_context`, `group_load_reduce`, `group_store`, `relaxedSignal`. Docs: docs/mscclpp.md.
"""

from __future__ import annotations

from .channel import Channel, MemoryChannel, PortChannel, SwitchChannel
from .collectives import AllGather, AllReduce, AllToAll, Broadcast, Collective, ReduceScatter, SendRecv, TestCollective
from .general import JSON
from .loop import Loop, LoopIterationContext
from .program import CollectiveProgram
from .rank import BaseBuffer, Buffer, Rank
from .semaphore import Semaphore
from .thread_block_group import ThreadBlockGroup
from .types import BufferType, ChannelType, Chunk, ReduceOperationType, ReplicationPolicy, SyncType
from .utils import AlgoSpec

__all__ = [
    "JSON",
    "AlgoSpec",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BaseBuffer",
    "Broadcast",
    "Buffer",
    "BufferType",
    "Channel",
    "ChannelType",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "Loop",
    "LoopIterationContext",
    "MemoryChannel",
    "PortChannel",
    "Rank",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SyncType",
    "TestCollective",
    "ThreadBlockGroup",
]
