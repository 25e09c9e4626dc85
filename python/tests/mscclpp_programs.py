"""Programs in MSCCL++'s language that tests share, and how they are run and compared."""

import inspect

import numpy as np

import maco
from maco.mscclpp import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Buffer,
    BufferType,
    Channel,
    CollectiveProgram,
    Loop,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    ReduceScatter,
    Semaphore,
    SwitchChannel,
    SyncType,
)

RANKS = [2, 3, 4, 8]


def here(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


# ---- programs


def mesh(n, kind=MemoryChannel):
    """A channel of each rank to each other, by (dst, src)."""
    return {(peer, rank): kind(peer, rank) for rank in range(n) for peer in range(n) if peer != rank}


def others(n, rank):
    return [peer for peer in range(n) if peer != rank]


def greet(channels, tb=0):
    """All ranks have come so far."""
    for channel in channels.values():
        channel.signal(tb, relaxed=True)
    for channel in channels.values():
        channel.wait(tb, relaxed=True, data_sync=SyncType.after)


def meet(channels, tb=0):
    """All ranks see what all wrote."""
    for channel in channels.values():
        channel.signal(tb, data_sync=SyncType.before)
    for channel in channels.values():
        channel.wait(tb)


def allreduce_oneshot(n, op=ReduceOperationType.sum, **options):
    with CollectiveProgram("oneshot_of_all", AllReduce(n, 1, False), n, **options) as program:
        channels = mesh(n)
        greet(channels)
        for rank in range(n):
            own, to = Rank(rank).get_input_buffer()[:], Rank(rank).get_output_buffer()[:]
            for i, peer in enumerate(others(n, rank)):
                # The first peer's is added to the own input, those of others to what came out.
                source = own if i == 0 else to
                channels[peer, rank].reduce(source, [Rank(peer).get_input_buffer()[:]], tb=0, local_dst_chunk=to, reduce_op=op)
    return program


def allreduce_twoshot(n, blocks=2, inplace=True, **options):
    """Each rank reduces a part where it lies and writes it back to all; the parts in as many thread blocks."""
    with CollectiveProgram("twoshot_of_all", AllReduce(n, blocks, inplace), n, **options) as program:
        channels = [mesh(n) for _ in range(blocks)]
        for tb in range(blocks):
            greet(channels[tb], tb)
            for rank in range(n):
                i = rank * blocks + tb
                own = Rank(rank).get_input_buffer()[i : i + 1]
                to = own if inplace else Rank(rank).get_output_buffer()[i : i + 1]
                for k, peer in enumerate(others(n, rank)):
                    source = own if k == 0 else to
                    channels[tb][peer, rank].reduce(source, [Rank(peer).get_input_buffer()[i : i + 1]], tb, local_dst_chunk=to)
                for peer in others(n, rank):
                    at = Rank(peer).get_input_buffer() if inplace else Rank(peer).get_output_buffer()
                    channels[tb][peer, rank].put(at[i : i + 1], to, tb)
            meet(channels[tb], tb)
    return program


def allreduce_ring(n, **options):
    """A sum goes round and grows, then the sums go round."""
    with CollectiveProgram("ring_of_all", AllReduce(n, 1, True), n, **options) as program:
        following = {rank: MemoryChannel((rank + 1) % n, rank) for rank in range(n)}
        before = following if n == 2 else {rank: MemoryChannel((rank - 1) % n, rank) for rank in range(n)}
        scratch = {rank: Buffer(rank, n) for rank in range(n)}
        for rank in range(n):
            own = Rank(rank).get_input_buffer()
            after = (rank + 1) % n
            for step in range(n - 1):
                i, k = (rank - step) % n, (rank - step - 1) % n
                following[rank].put(scratch[after][i : i + 1], own[i : i + 1], tb=0)
                following[rank].signal(tb=0, data_sync=SyncType.before)
                before[rank].wait(tb=0, data_sync=SyncType.after)
                Rank(rank).reduce(own[k : k + 1], [scratch[rank][k : k + 1]], tb=0)
            # The next rank has read what is written over now.
            for step in range(n - 1):
                i = (rank + 1 - step) % n
                following[rank].put(Rank(after).get_input_buffer()[i : i + 1], own[i : i + 1], tb=0)
                following[rank].signal(tb=0, data_sync=SyncType.before)
                before[rank].wait(tb=0, data_sync=SyncType.after)
    return program


def allreduce_packets(n, **options):
    with CollectiveProgram("packets_of_all", AllReduce(n, 1, True), n, protocol="LL", auto_sync=False, **options) as program:
        channels = mesh(n)
        scratch = [Buffer(rank, 2 * n) for rank in range(n)]
        for rank in range(n):
            own = Rank(rank).get_input_buffer()
            for peer in others(n, rank):
                channels[peer, rank].put_packets(scratch[peer][rank : rank + 1], own[peer : peer + 1], tb=0)
            came = [scratch[rank][peer : peer + 1] for peer in others(n, rank)]
            Rank(rank).reduce(own[rank : rank + 1], came, tb=0, packet=True)
            for peer in others(n, rank):
                channels[peer, rank].put_packets(scratch[peer][n + rank : n + rank + 1], own[rank : rank + 1], tb=0)
            for peer in others(n, rank):
                Rank(rank).unpack_packets(own[peer : peer + 1], scratch[rank][n + peer : n + peer + 1], tb=0)
    return program


def allgather_direct(n, inplace=False, factor=1, **options):
    with CollectiveProgram("direct_to_all", AllGather(n, factor, inplace), n, **options) as program:
        channels = mesh(n)
        greet(channels)
        for rank in range(n):
            block = slice(rank * factor, (rank + 1) * factor)
            own = Rank(rank).get_input_buffer()[:]
            if not inplace:
                Rank(rank).copy(Rank(rank).get_output_buffer()[block], own, tb=0)
            for peer in others(n, rank):
                channels[peer, rank].put(Rank(peer).get_output_buffer()[block], own, tb=0)
        meet(channels)
    return program


def allgather_ports(n, **options):
    """Round a ring of port channels."""
    with CollectiveProgram("ports_of_all", AllGather(n, 1, True), n, **options) as program:
        following = {rank: PortChannel((rank + 1) % n, rank) for rank in range(n)}
        before = following if n == 2 else {rank: PortChannel((rank - 1) % n, rank) for rank in range(n)}
        for rank in range(n):
            before[rank].signal(tb=0, data_sync=SyncType.none)
            following[rank].wait(tb=0, data_sync=SyncType.after)
            for step in range(n - 1):
                i = (rank - step) % n
                to = Rank((rank + 1) % n).get_output_buffer()[i : i + 1]
                own = Rank(rank).get_output_buffer()[i : i + 1]
                if step % 2 == 0:
                    following[rank].put_with_signal_and_flush(to, own, tb=0)
                else:
                    following[rank].put_with_signal(to, own, tb=0)
                before[rank].wait(tb=0, data_sync=SyncType.after)
            following[rank].flush(tb=0)
    return program


def reduce_scatter_get(n, **options):
    """Each rank fetches its block of all others, and adds up."""
    with CollectiveProgram("get_of_all", ReduceScatter(n, 2, False), n, **options) as program:
        channels = mesh(n)
        greet(channels)
        for rank in range(n):
            block = slice(2 * rank, 2 * rank + 2)
            scratch = Buffer(rank, 2 * n)
            for peer in others(n, rank):
                channels[peer, rank].get(scratch[2 * peer : 2 * peer + 2], Rank(peer).get_input_buffer()[block], tb=0)
            Rank(rank).barrier([0])
            came = [scratch[2 * peer : 2 * peer + 2] for peer in others(n, rank)]
            to = Rank(rank).get_output_buffer()[0:2]
            Rank(rank).reduce(Rank(rank).get_input_buffer()[block], came, tb=0, dst_chunk=to)
    return program


def alltoall_scratch(n, **options):
    with CollectiveProgram("scratch_of_all", AllToAll(n, 1, True), n, **options) as program:
        channels = mesh(n)
        scratch = [Buffer(rank, n) for rank in range(n)]
        for rank in range(n):
            own = Rank(rank).get_input_buffer()
            for peer in others(n, rank):
                tb = peer if peer < rank else peer - 1
                channels[peer, rank].signal(tb, relaxed=True)
                channels[peer, rank].wait(tb, relaxed=True, data_sync=SyncType.after)
                channels[peer, rank].put(scratch[peer][rank : rank + 1], own[peer : peer + 1], tb)
                channels[peer, rank].signal(tb, data_sync=SyncType.before)
                channels[peer, rank].wait(tb, data_sync=SyncType.after)
                Rank(rank).copy(own[peer : peer + 1], scratch[rank][peer : peer + 1], tb)
    return program


def broadcast_chain(n, root=0, **options):
    """From rank to rank, by way of scratch memory, in pieces; two thread blocks that a semaphore keeps in step."""
    with CollectiveProgram("chain_to_all", Broadcast(n, 1, False, root=root), n, **options) as program:
        order = [(root + i) % n for i in range(n)]
        scratch = [Buffer(rank, 1) for rank in range(n)]
        down = {rank: MemoryChannel(order[i + 1], rank) for i, rank in enumerate(order[:-1])}
        up = {rank: MemoryChannel(order[i], rank) for i, rank in enumerate(order[1:])}
        for i, rank in enumerate(order):
            arrived = Semaphore(rank, 0)
            with LoopIterationContext(unit=64, num_chunks=1):
                if i == 0:
                    Rank(rank).copy(scratch[rank][0:1], Rank(rank).get_input_buffer()[0:1], tb=0)
                else:
                    up[rank].wait(tb=0, data_sync=SyncType.after)
                Rank(rank).copy(Rank(rank).get_output_buffer()[0:1], scratch[rank][0:1], tb=0)
                if rank in down:
                    arrived.release(tb=0)
                    arrived.acquire(tb=1, data_sync=SyncType.after)
                    down[rank].put(scratch[order[i + 1]][0:1], scratch[rank][0:1], tb=1)
                    down[rank].signal(tb=1, data_sync=SyncType.before)
    return program


def allreduce_switch(n, **options):
    with CollectiveProgram("switch_of_all", AllReduce(n, 1, True), n, **options) as program:
        channels = mesh(n)
        switch = SwitchChannel(rank_list=list(range(n)), buffer_type=BufferType.input)
        greet(channels)
        for rank in range(n):
            own = Rank(rank).get_input_buffer()[rank : rank + 1]
            switch.at_rank(rank).reduce(buffer_offset=rank, size=1, dst_chunk=own, tb=0)
            switch.at_rank(rank).broadcast(src_chunk=own, buffer_offset=rank, size=1, tb=0)
        meet(channels)
    return program


def pipelined(fixed=True):
    """The all-reduce of two ranks in the docs of the language: three thread blocks that go round, with a switch channel of scratch memory.

    As printed there both ranks reduce the same chunk; `fixed` gives each its own.
    """
    with CollectiveProgram("pipelined", AllReduce(2, 1, False), 2) as program:
        nvls_chan = SwitchChannel(rank_list=[0, 1], buffer=Buffer.scratch)
        nranks = 2
        for i in range(nranks):
            src_rank = i
            dst_rank = (i + 1) % nranks
            chan = Channel(dst_rank, src_rank, channel_type=Channel.memory)
            chan1 = Channel(dst_rank, src_rank, channel_type=Channel.memory)
            rank = Rank(i)
            sem0 = Rank.Semaphore(rank=i, size=1)
            sem1 = Rank.Semaphore(rank=i, size=1)
            input_buffer = rank.get_input_buffer()
            output_buffer = rank.get_output_buffer()
            scratch_buffer = Buffer(i, nranks)
            with Loop.iteration(unit=2**20, num_chunks=1) as iter:
                for offset in range(nranks):
                    dst_chunk = scratch_buffer[offset : offset + 1]
                    src_chunk = input_buffer[offset : offset + 1]
                    rank.copy(dst_chunk, src_chunk, tb=0, iter_context=iter)
                chan.signal(tb=0, sync="before")
                chan.wait(tb=0, sync="after")
                sem0.release(tb=0)

                if fixed:
                    offset = i
                sem0.acquire(tb=1, sync="after")
                nvls_chan.group_load_reduce(offset, size=1, op="sum", tb=1, iter_context=iter)
                nvls_chan.group_store(offset, size=1, tb=1, iter_context=iter)
                chan1.signal(tb=1, sync="before")
                sem1.release(tb=1)

                sem1.acquire(tb=2)
                chan1.wait(tb=2, sync="after")
                for index in range(nranks):
                    dst_chunk = output_buffer[index : index + 1]
                    src_chunk = scratch_buffer[index : index + 1]
                    rank.copy(dst_chunk, src_chunk, tb=2, iter_context=iter)
    return program


# ---- running them


def run(program, inputs, **arguments):
    """The outputs of all ranks."""
    n = len(inputs)
    kind = {"reducescatter": "reduce_scatter"}.get(program.collective.name, program.collective.name)
    graph = maco.Graph("g", n)
    x = graph.input("x", inputs[0].dtype, inputs[0].shape)
    graph.output("y", getattr(graph, kind)(x, algorithm=program, **arguments))
    with maco.Session(graph.compile(target="cpu"), device="cpu") as session:
        session.allocate()
        for rank in range(n):
            session.write("x", inputs[rank], rank=rank)
        session.run()
        return [session.read("y", rank=rank) for rank in range(n)]


def numbers(n, shape, dtype="f4"):
    rng = np.random.default_rng(n)
    return [rng.integers(-9, 10, shape).astype(dtype) for _ in range(n)]


REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def wanted(collective, inputs, rank, how="sum"):
    if isinstance(collective, AllReduce):
        return REDUCE[how].reduce(inputs)
    if isinstance(collective, AllGather):
        return np.concatenate(inputs)
    if isinstance(collective, ReduceScatter):
        return np.split(REDUCE[how].reduce(inputs), len(inputs))[rank]
    if isinstance(collective, AllToAll):
        return np.concatenate([np.split(x, len(inputs))[rank] for x in inputs])
    assert isinstance(collective, Broadcast)
    return inputs[collective.root]


def compare(program, shape, how="sum", dtype="f4", **arguments):
    inputs = numbers(program.num_ranks, shape, dtype)
    outputs = run(program, inputs, **arguments)
    for rank, output in enumerate(outputs):
        np.testing.assert_array_equal(output, wanted(program.collective, inputs, rank, how))
