"""Programs in MSCCL++'s language: what they are written as, that they are proved and run, and mistakes at the caller's line."""

import inspect
import json
import pickle
import threading

import numpy as np
import pytest

import maco
from maco.mscclpp import (
    JSON,
    AlgoSpec,
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Buffer,
    BufferType,
    Channel,
    ChannelType,
    Chunk,
    Collective,
    CollectiveProgram,
    Loop,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    ReduceScatter,
    ReplicationPolicy,
    Semaphore,
    SendRecv,
    SwitchChannel,
    SyncType,
    TestCollective,
    ThreadBlockGroup,
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


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("made", [allreduce_oneshot, allreduce_twoshot, allreduce_ring, allreduce_packets])
def test_allreduce(made, n):
    compare(made(n), (5, 7))


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("made", [allgather_direct, allgather_ports, reduce_scatter_get, alltoall_scratch, broadcast_chain])
def test_others(made, n):
    program = made(n)
    arguments = {"root": 0} if made is broadcast_chain else {}
    compare(program, (3 * n, 5), **arguments)


@pytest.mark.parametrize(
    "program",
    [
        lambda: allreduce_twoshot(3, inplace=False),
        lambda: allreduce_twoshot(2, instances=3),
        lambda: allreduce_twoshot(4, instr_fusion=False),
        lambda: allreduce_packets(3, instances=2),
        lambda: allreduce_switch(4, instances=2),
        lambda: allreduce_switch(3),
        lambda: pipelined(),
        lambda: allgather_direct(3, inplace=True, factor=2),
        lambda: allgather_direct(2, instances=2),
        lambda: alltoall_scratch(2, instances=2),
    ],
)
def test_variants(program):
    compare(program(), (24, 3))


def test_instances_share_chunks():
    one, three = allreduce_twoshot(2, blocks=1), allreduce_twoshot(2, blocks=1, instances=3)
    assert "chunks = 2," in one.text() and "chunks = 6," in three.text()
    plan = json.loads(three.json())
    assert [tb["id"] for tb in plan["gpus"][0]["threadblocks"]] == [0, 1, 2]
    three.check()


@pytest.mark.parametrize("how", ["max", "min"])
def test_reductions(how):
    compare(allreduce_oneshot(3, op=ReduceOperationType[how]), (4, 4), how, reduce=how)
    compare(allreduce_oneshot(2, op=how), (4, 4), how, reduce=how)


def test_root_and_shapes():
    compare(broadcast_chain(3, root=2), (7,), root=2)
    compare(allreduce_twoshot(4), (1,))  # fewer elements than chunks
    compare(allreduce_twoshot(2), (130, 257), dtype="i4")
    compare(reduce_scatter_get(3), (3, 2, 2))


def test_a_group_of_thread_blocks():
    n = 3
    with CollectiveProgram("shared", AllGather(n, 1, True), n) as program:
        channels = mesh(n)
        group = ThreadBlockGroup(tb_list=[0, 2, 3])
        assert (group.numtb(), group.get_internal_id(2)) == (3, 1)
        greet(channels)
        for rank in range(n):
            Rank(rank).barrier(group.tb_list)
            for peer in others(n, rank):
                to = Rank(peer).get_output_buffer()[rank : rank + 1]
                channels[peer, rank].put(to, Rank(rank).get_output_buffer()[rank : rank + 1], tb_group=group)
            Rank(rank).barrier(group.tb_list)
        meet(channels)
    assert "chunks = 3," in program.text()
    compare(program, (7, 5))


def test_packets_are_passed_on():
    """Packets that are copied, sent on as they are, and multicast."""
    n = 4
    with CollectiveProgram("round", AllGather(n, 1, False), n, protocol="LL") as program:
        scratch = [Buffer(rank, n) for rank in range(n)]
        after = {rank: MemoryChannel((rank + 1) % n, rank) for rank in range(n)}
        for rank in range(n):
            own, output = Rank(rank).get_input_buffer(), Rank(rank).get_output_buffer()
            Rank(rank).copy_packets(scratch[rank][rank : rank + 1], own[0:1], tb=0)
            for step in range(n - 1):
                i = (rank - step) % n
                after[rank].read_put_packets(scratch[(rank + 1) % n][i : i + 1], scratch[rank][i : i + 1], tb=0)
            for i in range(n):
                Rank(rank).unpack_packets(output[i : i + 1], scratch[rank][i : i + 1], tb=1)
    compare(program, (6, 4))
    with CollectiveProgram("multicast", AllGather(n, 1, False), n, protocol="LL") as program:
        scratch = [Buffer(rank, n) for rank in range(n)]
        switch = SwitchChannel(range(n), BufferType.scratch)
        for rank in range(n):
            Rank(rank).copy_packets(scratch[rank][rank : rank + 1], Rank(rank).get_input_buffer()[0:1], tb=0)
            switch.at_rank(rank).broadcast_packets(scratch[rank][rank : rank + 1], rank, 1, tb=0)
        for rank in range(n):
            for i in range(n):
                Rank(rank).unpack_packets(Rank(rank).get_output_buffer()[i : i + 1], scratch[rank][i : i + 1], tb=i)
    compare(program, (6, 4))


def test_reduced_packets_are_sent():
    """A reduction of packets whose result goes into packets of its own and of peers."""
    n = 3
    with CollectiveProgram("sent", AllReduce(n, 1, True), n, protocol="LL") as program:
        channels = mesh(n)
        scratch = [Buffer(rank, 2 * n) for rank in range(n)]
        for rank in range(n):
            own = Rank(rank).get_input_buffer()
            for peer in others(n, rank):
                channels[peer, rank].put_packets(scratch[peer][rank : rank + 1], own[peer : peer + 1], tb=0)
            came = [scratch[rank][peer : peer + 1] for peer in others(n, rank)]
            kept = scratch[rank][n + rank : n + rank + 1]
            Rank(rank).reduce(own[rank : rank + 1], came, tb=0, packet=True)
            Rank(rank).copy_packets(kept, own[rank : rank + 1], tb=0)
            for peer in others(n, rank):
                channels[peer, rank].read_put_packets(scratch[peer][n + rank : n + rank + 1], kept, tb=0)
            for peer in others(n, rank):
                Rank(rank).unpack_packets(own[peer : peer + 1], scratch[rank][n + peer : n + peer + 1], tb=1)
    assert "recspkt" in program.json()
    compare(program, (4, 6))


def test_loops_follow_each_other():
    """Two loops of one unit, and their thread blocks in step by a barrier and semaphores that begin above 0."""
    n = 2
    with CollectiveProgram("loops", AllGather(n, 2, False), n) as program:
        channels = mesh(n)
        for rank in range(n):
            own, output = Rank(rank).get_input_buffer(), Rank(rank).get_output_buffer()
            there = Rank(1 - rank).get_output_buffer()
            free = Semaphore(rank, 2)
            for i in range(2):
                with Loop.iteration(unit=32, num_chunks=1):
                    free.acquire(tb=0)
                    channels[1 - rank, rank].put(there[2 * rank + i : 2 * rank + i + 1], own[i : i + 1], tb=0)
                    Rank(rank).copy(output[2 * rank + i : 2 * rank + i + 1], own[i : i + 1], tb=1)
                    free.release(tb=1)
            Rank(rank).barrier([0, 1])
            channels[1 - rank, rank].signal(tb=1)
            channels[1 - rank, rank].wait(tb=1)
    assert "semaphores = [2]" in program.text()
    # The import keeps the loops apart by barriers of one block.
    assert program.text().count("barrier(blocks = [0], ") == 1
    compare(program, (8, 5))
    assert len(program._imported().places) > 1


def test_ports_move_packets():
    n = 3
    with CollectiveProgram("ports", AllGather(n, 1, True), n, protocol="LL") as program:
        channels = mesh(n, PortChannel)
        scratch = [Buffer(rank, n) for rank in range(n)]
        for rank in range(n):
            own = Rank(rank).get_output_buffer()
            Rank(rank).copy_packets(scratch[rank][rank : rank + 1], own[rank : rank + 1], tb=0)
            for peer in others(n, rank):
                channels[peer, rank].put_packets(scratch[peer][rank : rank + 1], scratch[rank][rank : rank + 1], tb=0)
            for peer in others(n, rank):
                Rank(rank).unpack_packets(own[peer : peer + 1], scratch[rank][peer : peer + 1], tb=1)
    compare(program, (6, 4))


def test_an_average_is_a_sum_divided():
    inputs = numbers(4, (4, 5))
    for output in run(allreduce_twoshot(4), inputs, reduce="avg"):
        np.testing.assert_array_equal(output, np.mean(inputs, axis=0, dtype="f4"))


def test_a_program_among_other_ops():
    """In one kernel with what computes, twice, beside a program of another name and a text."""
    n = 2
    g = maco.Graph("layer", n)
    x = g.input("x", "f32", [4, 6])
    sums = allreduce_twoshot(n)
    h = g.allreduce(g.relu(x), algorithm=sums)
    g.output("y", g.allreduce(h + x, algorithm=sums, priority="high"))
    g.output("z", g.allgather(h, algorithm=allgather_direct(n)))
    g.output("w", g.allreduce(x, algorithm="ring"))
    with maco.Session(g.compile(target="cpu"), device="cpu") as s:
        s.allocate()
        inputs = numbers(n, (4, 6))
        for rank in range(n):
            s.write("x", inputs[rank], rank=rank)
        s.run()
        once = sum(np.maximum(one, 0) for one in inputs)
        for rank in range(n):
            np.testing.assert_array_equal(s.read("y", rank=rank), n * once + sum(inputs))
            np.testing.assert_array_equal(s.read("z", rank=rank), np.concatenate([once] * n))


def test_bf16_rounds_once():
    """Reductions of many chunks are fused, so that a sum is rounded once, as MACO's own is."""
    pytest.importorskip("ml_dtypes")
    n = 4
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=(4, 16)).astype(maco.bf16.numpy()) for _ in range(n)]
    outputs = run(allreduce_twoshot(n), inputs)
    want = np.add.reduce([x.astype("f4") for x in inputs]).astype(maco.bf16.numpy())
    for output in outputs:
        np.testing.assert_array_equal(output.astype("f4"), want.astype("f4"))


def test_graph_and_check():
    program = allreduce_oneshot(2)
    program.check()
    program.check("f32")
    g = program.graph("f32", 10)
    assert g.world == 2 and 'algorithm = "oneshot_of_all"' in g.text()
    g.compile(target="cpu")
    reduce_scatter_get(3).check()
    broadcast_chain(3, root=1).check()
    allreduce_twoshot(2, max_message_size=64).check()
    allreduce_twoshot(2, min_message_size=1 << 20).check("f16")


# ---- what they are written as


def test_text():
    assert (
        allreduce_twoshot(4, blocks=1).text()
        == """collective twoshot_of_all(of = allreduce, world = 4, chunks = 4, in_place = true) {
  # thread block 0
  signal(to = others, tag = 0, relaxed = true)
  wait(from = others, tag = 0, relaxed = true)
  input[rank] @ all = reduce(input[rank] @ all)
  signal(to = others, tag = 0)
  wait(from = others, tag = 0)
}
""".replace("  # thread block 0\n", "")
    )
    # Where nothing else says that its author orders the statements, a barrier does.
    with CollectiveProgram("one", AllGather(1, 1, False), 1) as program:
        Rank(0).copy(Rank(0).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0)
    assert "  barrier(blocks = [0])\n}\n" in program.text()
    assert CollectiveProgram("2 names!", AllReduce(2), 2)._imported().name == "plan_2_names_"


def test_plan():
    """What MSCCL++'s executor reads: the keys, channels and peers' memory by number, and where threads of a block wait for each other."""
    with CollectiveProgram("p", AllGather(2, 1, True), 2, num_threads_per_block=512, max_message_size=1 << 20) as program:
        channels = mesh(2)
        for rank in range(2):
            channels[1 - rank, rank].signal(tb=0, relaxed=True, data_sync=SyncType.none)
            channels[1 - rank, rank].wait(tb=0, relaxed=True, data_sync=SyncType.after)
            own = Rank(rank).get_output_buffer()[rank : rank + 1]
            channels[1 - rank, rank].put(Rank(1 - rank).get_output_buffer()[rank : rank + 1], own, tb=0)
            channels[1 - rank, rank].signal(tb=0, data_sync=SyncType.before)
            channels[1 - rank, rank].wait(tb=0, data_sync=SyncType.none)
        text = JSON()
    plan = json.loads(text)
    assert plan == json.loads(program.json(indent=None)) == json.loads(program.to_json(indent=1, sort_keys=True))
    gpus = plan.pop("gpus")
    assert plan == {
        "name": "p",
        "collective": "allgather",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "num_threads_per_block": 512,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 1 << 20,
    }
    assert gpus[1] == {
        "id": 1,
        "input_chunks": 1,
        "output_chunks": 2,
        "scratch_chunks": 0,
        "threadblocks": [
            {
                "id": 0,
                "ops": [
                    {"name": "rlxsignal", "channel_ids": [0], "channel_type": "memory"},
                    {"name": "rlxwait", "channel_ids": [0], "channel_type": "memory"},
                    {"name": "nop"},
                    {
                        "name": "put",
                        "src_buff": [{"type": "o", "index": 1, "size": 1}],
                        "dst_buff": [{"buffer_id": 0, "index": 1, "size": 1}],
                        "channel_type": "memory",
                    },
                    {"name": "nop"},
                    {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
                    {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
                ],
                "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
            }
        ],
        "channels": [{"channel_type": "memory", "connected_to": [0]}],
        "remote_buffers": [{"rank": 0, "type": "o", "access_channel_types": ["memory"]}],
        "semaphores": [],
    }


def test_threads_wait_for_data():
    def names(auto_sync):
        with CollectiveProgram("p", TestCollective(1, 2, 2), 1, auto_sync=auto_sync) as program:
            rank = Rank(0)
            rank.copy(rank.get_output_buffer()[0:1], rank.get_input_buffer()[0:1], tb=0)
            rank.copy(rank.get_output_buffer()[1:2], rank.get_input_buffer()[0:1], tb=0)  # reads what the first read
            rank.copy(rank.get_input_buffer()[1:2], rank.get_output_buffer()[0:1], tb=0)  # reads what the first wrote
        (block,) = json.loads(program.json())["gpus"][0]["threadblocks"]
        return [op["name"] for op in block["ops"]]

    assert names(True) == ["copy", "copy", "nop", "copy"]
    assert names(False) == ["copy", "copy", "copy"]


def test_fusion():
    def names(fuse):
        with CollectiveProgram("p", AllReduce(3, 1, True), 3, instr_fusion=fuse, auto_sync=False) as program:
            channels = mesh(3)
            for channel in channels.values():
                channel.signal(tb=0, data_sync=SyncType.none)
            for channel in channels.values():
                channel.wait(tb=0, data_sync=SyncType.none)
            own = Rank(0).get_input_buffer()
            for peer in (1, 2):
                channels[peer, 0].reduce(own[0:1], [Rank(peer).get_input_buffer()[0:1]], tb=0)
            for peer in (1, 2):
                channels[peer, 0].put(Rank(peer).get_input_buffer()[0:1], own[0:1], tb=0)
            scratch = Buffer(0, 2)
            channels[1, 0].get(scratch[0:1], Rank(1).get_input_buffer()[1:2], tb=0)
            channels[1, 0].get(scratch[1:2], Rank(1).get_input_buffer()[2:3], tb=0)
            Rank(0).reduce(own[1:2], scratch[0:1], tb=0)
            Rank(0).reduce(own[1:2], own[1:2], tb=0)  # of its own result: not the same as one reduction
            semaphores = [Semaphore(0, 1) for _ in range(2)]
            for one in semaphores:
                one.acquire(tb=1, data_sync=SyncType.none)
            for one in semaphores:
                one.release(tb=1, data_sync=SyncType.none)
        return [[op["name"] for op in block["ops"]] for block in json.loads(program.json())["gpus"][0]["threadblocks"]]

    assert names(True) == [["signal", "wait", "rres", "get", "re", "re"], ["sem_acquire", "sem_release"]]
    assert names(False) == [
        ["signal"] * 2 + ["wait"] * 2 + ["rre"] * 2 + ["put"] * 2 + ["get"] * 2 + ["re"] * 2,
        ["sem_acquire"] * 2 + ["sem_release"] * 2,
    ]


def test_the_docs_fragments():
    """Word by word what the language's docs show beside whole programs."""
    rank_id = 0
    with CollectiveProgram("p", AllReduce(2, 1, True), 2) as program:
        rank = Rank(rank_id)
        input_buffer = rank.get_input_buffer()
        dst_chunk = input_buffer[0:1]
        src_chunk = input_buffer[1:2]
        rank.copy(dst_chunk, src_chunk, tb=0)
        rank.reduce(dst_chunk, src_chunk, op=ReduceOperationType.sum, tb=0)

        nranks = 2
        for i in range(nranks):
            src_rank = i
            dst_rank = (i + 1) % nranks
            channel = MemoryChannel(dst_rank, src_rank)
            channel.relaxedSignal(tb=0, data_sync=SyncType.none)
            channel.relaxedWait(tb=0, data_sync=SyncType.after)

        gpu_size = 2
        switch_chan = SwitchChannel(rank_list=[gpu for gpu in range(gpu_size)], buffer_type=BufferType.input)  # noqa: C416
        for gpu in range(gpu_size):
            buffer_offset = gpu
            rank = Rank(gpu)
            input_buffer = rank.get_input_buffer()
            switch_chan.at_rank(gpu).group_load_reduce(buffer_offset, size=1, dst_chunk=input_buffer[gpu : gpu + 1], tb=0)
            switch_chan.at_rank(gpu).group_store(input_buffer[gpu : gpu + 1], buffer_offset, size=1, tb=0)

        rank = Rank(0)
        rank.barrier([0, 1])
        sem = Semaphore(rank=0, initial_value=1)
        sem.acquire(tb=0, data_sync=SyncType.after)
        sem.release(tb=0, data_sync=SyncType.before)

        sem = Rank.Semaphore(rank=rank, initial_value=1)
        rank = Rank(src_rank := 0)
        channel_type = Channel.memory
        dst_chunk, src_chunk = Rank(0).get_input_buffer()[0:1], Rank(0).get_input_buffer()[1:2]
        other_peer_chunk = Rank(1).get_input_buffer()[0:1]
        dst_rank = 1
        with Loop.iteration(unit=2**20, num_chunks=1) as iter:
            rank.copy(dst_chunk, src_chunk, tb=0, iter_context=iter)
            sem.release(tb=0)
            channel = Channel(dst_rank, src_rank, channel_type)
            sem.acquire(tb=1)
            channel.put(other_peer_chunk, dst_chunk, tb=1, iter_context=iter)
    blocks = json.loads(program.json())["gpus"][0]["threadblocks"]
    names = [[op["name"] for op in block["ops"] if op["name"] != "nop"] for block in blocks]
    copies = ["copy", "re", "rlxsignal", "rlxwait", "glres", "barrier", "sem_acquire", "sem_release", "pipeline"]
    assert names == [copies, ["barrier", "pipeline"]]
    assert program.text().startswith("collective p(")


def test_names():
    import maco.mscclpp
    import maco.mscclpp.channel
    import maco.mscclpp.program
    import maco.mscclpp.rank

    for module in (maco.mscclpp, maco.mscclpp.channel, maco.mscclpp.program, maco.mscclpp.rank):
        for name in module.__all__:
            assert hasattr(module, name), (module, name)
    assert (str(SyncType.both), str(BufferType.scratch), str(ChannelType.port)) == ("both", "s", "port")
    assert SyncType.before | SyncType.after is SyncType.both
    assert SyncType.both & SyncType.after is SyncType.after and SyncType.both ^ SyncType.after is SyncType.before


def test_specs():
    spec = AlgoSpec("s", AllReduce(2, 1, True), 2, 2, True, 2, "LL", auto_sync=False, max_message_size=1 << 20, tags={"default": 1})
    program = CollectiveProgram.from_spec(spec)
    assert (program.instances, program.protocol, program.max_message_size) == (2, "LL", 1 << 20)
    for change, words in (({"in_place": False}, "inplace is True"), ({"nranks_per_node": 3}, "1 to 2"), ({"world_size": 3}, "3 ranks")):
        with pytest.raises(maco.GraphError, match=words):
            CollectiveProgram.from_spec(AlgoSpec(**{**spec.__dict__, **change}))


# ---- mistakes


def refused(match, program=None):
    """A block that raises a GraphError with these words at its last line, within a program of two ranks."""

    class Refused:
        def __enter__(self):
            self.program = program or CollectiveProgram("p", AllReduce(2, 2, True), 2)
            self.program.__enter__()
            return self.program

        def __exit__(self, kind, error, trace):
            self.program.__exit__(None, None, None)
            assert kind is maco.GraphError, error
            assert match in str(error), str(error)
            (one,) = error.diagnostics
            assert one.file == __file__
            line = trace.tb_lineno
            assert one.line == line, (one.line, line)
            return True

    return Refused()


def test_wrong_places():
    with refused("is rank 2, but the ranks are 0 to 1"):
        Rank(2)
    with refused("is rank -1"):
        Rank(-1)
    with refused("dst_rank is rank 7"):
        MemoryChannel(7, 0)
    with refused("both of its ends are of rank 1"):
        PortChannel(1, 1)
    with refused("an entry of rank_list is rank 2"):
        SwitchChannel([0, 2], BufferType.input)
    with refused("rank 1 is in the group twice"):
        SwitchChannel([1, 1], BufferType.input)
    with refused("is past the end of the buffer, which has 4 chunks"):
        Rank(0).get_input_buffer()[3:5]
    with refused("has no chunk"):
        Rank(0).get_input_buffer()[2:2]
    with refused("must be at least 0"):
        Rank(0).get_input_buffer()[-1:1]
    with refused("a step of 2"):
        Rank(0).get_input_buffer()[0:4:2]
    with refused("has 4 chunks"):
        Rank(0).copy(Chunk(0, BufferType.output, 4, 1), Rank(0).get_input_buffer()[0:1], tb=0)
    with refused("has 0 chunks"):
        Rank(0).copy(Chunk(0, BufferType.scratch, 0, 1), Rank(0).get_input_buffer()[0:1], tb=0)
    with refused("src_chunk is input[0:1] of rank 1, but must be of rank 0"):
        Rank(0).copy(Rank(0).get_input_buffer()[0:1], Rank(1).get_input_buffer()[0:1], tb=0)
    with refused("it goes from rank 0 to rank 1"):
        MemoryChannel(1, 0).put(Rank(0).get_input_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0)
    with refused("must be of one size: input[0:2] of rank 0 has 2 and output[0:1] of rank 1 has 1"):
        MemoryChannel(1, 0).put(Rank(1).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:2], tb=0)
    with refused("must be of one size"):
        MemoryChannel(1, 0).get(Rank(0).get_output_buffer()[0:1], Rank(1).get_input_buffer()[0:2], tb=0)
    with refused("other_chunks is empty"):
        Rank(0).reduce(Rank(0).get_input_buffer()[0:1], [], tb=0)
    with refused("rank 1 isn't in the channel's group of 0"):
        SwitchChannel([0], BufferType.input).at_rank(1)
    with refused("dst_chunk is input[0:1] of rank 1, but must be of rank 0"):
        SwitchChannel([0, 1], BufferType.input).reduce(0, 0, 1, Rank(1).get_input_buffer()[0:1], tb=0)
    with refused("has 4 chunks"):
        SwitchChannel([0, 1], BufferType.input).at_rank(0).group_store(4, size=1, tb=0)


def test_wrong_blocks_and_words():
    own = slice(0, 1)
    with refused("give one of the two"):
        Rank(0).copy(Rank(0).get_output_buffer()[own], Rank(0).get_input_buffer()[own])
    with refused("give one of the two"):
        Rank(0).copy(Rank(0).get_output_buffer()[own], Rank(0).get_input_buffer()[own], tb=0, tb_group=ThreadBlockGroup([0]))
    with refused("tb must be 0 to 1023, found -1"):
        MemoryChannel(1, 0).signal(tb=-1)
    with refused("thread block 3 is in the group twice"):
        ThreadBlockGroup([3, 3])
    with refused("must have one at least"):
        Rank(0).barrier([])
    with refused("did you mean 'before'?"):
        MemoryChannel(1, 0).signal(tb=0, sync="befor")
    with refused("reduce_op can't be 'mean'"):
        Rank(0).reduce(Rank(0).get_input_buffer()[own], Rank(0).get_output_buffer()[own], tb=0, reduce_op="mean")
    with refused("SwitchChannel(rank_list, buffer_type)"):
        Channel(1, 0, Channel.switch)
    with refused("flush() is of port channels"):
        MemoryChannel(1, 0).flush(tb=0)
    with refused("BufferType.input, output or scratch"):
        SwitchChannel([0, 1])
    with refused("at_rank(rank).group_store"):
        SwitchChannel([0, 1], BufferType.input).group_store(0, size=1, tb=0)
    with refused("a semaphore is one counter, not 2"):
        Semaphore(0, size=2)
    with refused("packets need a program of protocol 'LL'"):
        Rank(0).copy_packets(Buffer(0, 1)[0:1], Rank(0).get_input_buffer()[own], tb=0)
    with refused("must be in scratch memory"):
        MemoryChannel(1, 0).put_packets(Rank(1).get_input_buffer()[own], Rank(0).get_input_buffer()[own], tb=0)
    with refused("the channel is of the input"):
        SwitchChannel([0, 1], "input").broadcast_packets(0, Buffer(0, 1)[0:1], 0, 1, tb=0)


def test_wrong_loops():
    with refused("a loop can't be inside of another") as _, LoopIterationContext(64, 1):
        LoopIterationContext(64, 1).__enter__()
    with refused("found 2"), Loop.iteration(64, 1):
        Rank(0).copy(Rank(0).get_output_buffer()[0:2], Rank(0).get_input_buffer()[0:2], tb=0)
    with refused("unit must be 1 to"):
        LoopIterationContext(0, 1)
    with refused("of a loop that this operation doesn't stand in"):
        Rank(0).copy(Rank(0).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0, iter_context=Loop.iteration(64, 1))
    packets = CollectiveProgram("p", AllReduce(2, 2, True), 2, protocol="LL")
    with refused("packets can't be in a loop", packets), Loop.iteration(64, 1):
        Rank(0).copy_packets(Buffer(0, 1)[0:1], Rank(0).get_input_buffer()[0:1], tb=0)
    with refused("the loop is still open"), Loop.iteration(64, 1):
        JSON()
    with CollectiveProgram("p", AllReduce(2), 2) as program:
        with pytest.raises(ZeroDivisionError), Loop.iteration(64, 1):
            Rank(0).copy(Rank(0).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0)
            raise ZeroDivisionError
        with Loop.iteration(64, 1) as loop:
            MemoryChannel(1, 0).signal(tb=0)
            line = here(-2)
        with pytest.raises(maco.GraphError, match="written already"), loop:
            pass
        MemoryChannel(0, 1).wait(tb=0)
    with pytest.raises(maco.GraphError, match="nothing in this pipeline moves chunks") as e:
        program.text()
    assert e.value.diagnostics[0].line == line


def test_wrong_programs():
    with pytest.raises(maco.GraphError, match="no program is open here"):
        Rank(0)
    with refused("'p' is open"):
        CollectiveProgram("q", AllReduce(2), 2).__enter__()
    collective = AllReduce(2, 1, True)
    for options, words in (
        ({"num_ranks": 3}, "of 3 ranks, but its collective of 2"),
        ({"num_ranks": 65}, "num_ranks must be 1 to 64"),
        ({"instances": 0}, "instances must be 1 to"),
        ({"protocol": "LL128"}, "protocol must be 'Simple' or 'LL'"),
        ({"replication_policy": "none", "instances": 2}, "take interleaved"),
        ({"replication_policy": "blocked"}, "replication_policy can't be 'blocked'"),
        ({"num_threads_per_block": 2048}, "num_threads_per_block must be 1 to 1024"),
        ({"buffer_alignment": 0}, "buffer_alignment must be at least 1"),
        ({"min_message_size": 8, "max_message_size": 4}, "more than max_message_size"),
        ({"max_message_size": -1}, "max_message_size must be 0 to"),
    ):
        with pytest.raises(maco.GraphError, match=words) as e:
            CollectiveProgram(**{"name": "p", "collective": collective, "num_ranks": 2, **options})
        assert e.value.diagnostics[0].file == __file__
    CollectiveProgram("p", collective, 2, replication_policy=ReplicationPolicy.none)
    for wrong in ({"name": 3}, {"collective": "allreduce"}, {"num_ranks": "2"}, {"instances": True}, {"instr_fusion": 1}):
        with pytest.raises(TypeError):
            CollectiveProgram(**{"name": "p", "collective": collective, "num_ranks": 2, **wrong})
    with pytest.raises(maco.GraphError, match="root is rank 2"):
        Broadcast(2, root=2)
    with CollectiveProgram("p", collective, 2) as first:
        channel, rank, semaphore = MemoryChannel(1, 0), Rank(0), Semaphore(0)
    with CollectiveProgram("q", collective, 2):
        for call in (
            lambda: channel.signal(tb=0),
            lambda: rank.copy(rank.get_output_buffer()[0:1], rank.get_input_buffer()[0:1], tb=0),
            lambda: semaphore.acquire(tb=0),
        ):
            with pytest.raises(maco.GraphError, match="of another program, 'p'"):
                call()
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(first)
    # What failed leaves nothing open.
    with pytest.raises(ZeroDivisionError), CollectiveProgram("p", collective, 2):
        raise ZeroDivisionError
    with pytest.raises(maco.GraphError, match="no program is open here"):
        Rank(0)


def test_wrong_types():
    with CollectiveProgram("p", AllReduce(2, 2, True), 2):
        own = Rank(0).get_input_buffer()
        for call in (
            lambda: own[0],
            lambda: Rank("0"),
            lambda: Rank(True),
            lambda: Rank(0).copy(own, own[0:1], tb=0),
            lambda: Rank(0).copy(own[0:1], own[1:2], tb="0"),
            lambda: Rank(0).copy(own[0:1], own[1:2], tb_group=[0]),
            lambda: Rank(0).copy(own[0:1], own[1:2], tb=0, iter_context=1),
            lambda: Rank(0).reduce(own[0:1], 3, tb=0),
            lambda: Rank(0).reduce(own[0:1], own[1:2], tb=0, packet=1),
            lambda: MemoryChannel(1, 0).signal(),
            lambda: MemoryChannel(1, 0).signal(tb=0, data_sync=3),
            lambda: MemoryChannel(1, 0).signal(tb=0, relaxed="yes"),
            lambda: SwitchChannel([0, 1], 3),
            lambda: SwitchChannel([0, 1], "input").at_rank(0).group_store(own, 0, size=1, tb=0),
        ):
            with pytest.raises(TypeError):
                call()
    assert len(own) == 4


def test_signals_without_waits():
    with CollectiveProgram("p", AllGather(2, 1, True), 2) as program:
        channels = mesh(2)
        line = here(1)
        channels[1, 0].signal(tb=0)
        for rank in range(2):
            own = Rank(rank).get_output_buffer()[rank : rank + 1]
            channels[1 - rank, rank].put(Rank(1 - rank).get_output_buffer()[rank : rank + 1], own, tb=0)
    for call in (program.json, program.text):
        with pytest.raises(maco.GraphError, match="rank 0 signals rank 1") as e:
            call()
        assert (e.value.diagnostics[0].file, e.value.diagnostics[0].line) == (__file__, line)


def proved_wrong(program, words, lines):
    """Compiling a graph with it fails with these words, at one of these lines."""
    with pytest.raises(maco.GraphError, match=words) as e:
        program.check()
    one = e.value.diagnostics[0]
    assert one.file == __file__ and one.line in lines, str(e.value)
    assert any("in the collective's text: " in note.text for note in one.notes)
    assert words in pickle.loads(pickle.dumps(e.value)).message


def broken(mistake):
    """An all-gather of two ranks with one mistake."""
    lines = {}
    with CollectiveProgram("broken", AllGather(2, 1, True), 2) as program:
        channels = mesh(2)
        if mistake != "greets":
            greet(channels)
        for rank in range(2):
            own = Rank(rank).get_output_buffer()[rank : rank + 1]
            lines["put"] = here(1)
            channels[1 - rank, rank].put(Rank(1 - rank).get_output_buffer()[rank : rank + 1], own, tb=0)
        if mistake == "first":
            for channel in channels.values():
                lines["first"] = here(1)
                channel.wait(tb=0)
                channel.signal(tb=0)
        elif mistake == "relaxed":
            greet(channels)
        elif mistake == "moves":
            own = Rank(0).get_output_buffer()
            lines["moves"] = here(1)
            Rank(0).copy(own[0:1], own[1:2], tb=0)
            meet(channels)
        elif mistake == "block":
            meet(channels, tb=1)
        elif mistake != "ends":
            meet(channels)
    return program, lines


def test_what_is_wrong_is_proved_so():
    for right in ("", "greets"):
        broken(right)[0].check()
    program, lines = broken("first")
    proved_wrong(program, "deadlock", [lines["first"]])
    program, lines = broken("relaxed")
    proved_wrong(program, "visible", [lines["put"]])
    program, lines = broken("ends")
    proved_wrong(program, "may end before", [lines["put"]])
    program, lines = broken("moves")
    proved_wrong(program, "nothing orders them", [lines["put"], lines["moves"]])
    program, lines = broken("block")
    source, first = inspect.getsourcelines(meet)
    proved_wrong(program, "which of them comes first would decide", range(first, first + len(source)))


def test_the_docs_allreduce_as_printed_races():
    with pytest.raises(maco.GraphError, match="nothing orders them") as e:
        pipelined(fixed=False).check()
    source, first = inspect.getsourcelines(pipelined)
    assert "group_load_reduce" in source[e.value.diagnostics[0].line - first]


def test_wrong_results():
    """What is done without a race, but isn't the collective."""
    with CollectiveProgram("none", AllReduce(2, 1, True), 2) as program:
        meet(mesh(2))
    with pytest.raises(maco.GraphError, match="'none'"):
        program.check()
    with CollectiveProgram("twice", AllReduce(2, 1, False), 2) as program:
        channels = mesh(2)
        for rank in range(2):
            there = Rank(1 - rank).get_input_buffer()[:]
            line = here(1)
            channels[1 - rank, rank].reduce(
                Rank(rank).get_input_buffer()[:], [there, there], tb=0, local_dst_chunk=Rank(rank).get_output_buffer()[:]
            )
    with pytest.raises(maco.GraphError, match="twice") as e:
        program.check()
    assert e.value.diagnostics[0].line == line
    with pytest.raises(maco.GraphError, match="root"):
        with CollectiveProgram("root", Broadcast(2, 1, False, root=1), 2) as program:
            channels = mesh(2)
            for rank in range(2):
                Rank(rank).copy(Rank(rank).get_output_buffer()[:], Rank(0).get_input_buffer()[:], tb=0) if rank == 0 else None
            channels[1, 0].put(Rank(1).get_output_buffer()[:], Rank(0).get_input_buffer()[:], tb=0)
            channels[1, 0].signal(tb=0)
            channels[0, 1].wait(tb=0)
        program.text()


def test_sums_in_other_orders():
    """Ranks that would not hold the same bits; of integers they would."""
    line = inspect.getsourcelines(allreduce_oneshot)[1] + 1
    program = allreduce_oneshot(3, instr_fusion=False)
    with pytest.raises(maco.GraphError, match="would not hold the same bits") as e:
        program.check()
    assert (e.value.diagnostics[0].file, e.value.diagnostics[0].line) == (__file__, line)
    program.check("i32")
    compare(program, (3, 5), dtype="i4")


def test_reductions_that_differ():
    with CollectiveProgram("p", AllReduce(2, 1, True), 2) as program:
        channels = mesh(2)
        for rank, op in enumerate(("sum", "max")):
            i = slice(rank, rank + 1)
            line = here(1)
            channels[1 - rank, rank].reduce(Rank(rank).get_input_buffer()[i], Rank(1 - rank).get_input_buffer()[i], tb=0, op=op)
    with pytest.raises(maco.GraphError, match="'sum' and 'max' can't be had in one collective") as e:
        program.text()
    assert e.value.diagnostics[0].line == line
    with CollectiveProgram("p", AllGather(2, 1, True), 2) as program:
        line = here(1)
        Rank(0).reduce(Rank(0).get_output_buffer()[0:1], Rank(0).get_output_buffer()[1:2], tb=0)
    with pytest.raises(maco.GraphError, match="reduces nothing") as e:
        program.text()
    assert e.value.diagnostics[0].line == line
    # What isn't of an operation is at the program's line.
    line = here(1)
    with CollectiveProgram("p", AllReduce(2, 1 << 15, True), 2, instances=2) as program:
        MemoryChannel(1, 0).signal(tb=0)
        MemoryChannel(0, 1).wait(tb=0)
    with pytest.raises(maco.GraphError, match="65536") as e:
        program.text()
    assert abs(e.value.diagnostics[0].line - line) <= 2


def test_collectives_that_maco_has_not():
    class Mine(Collective):
        def chunks(self, buffer):
            return 1

    for collective, words in (
        (SendRecv(2, 1, False), "ring_shift"),
        (TestCollective(2, 1, 1), "no collective 'test'"),
        (Mine(2), "no collective 'custom'"),
    ):
        line = here(1)
        program = CollectiveProgram("p", collective, 2)
        assert json.loads(program.json())["collective"] == collective.name
        with pytest.raises(maco.GraphError, match=words) as e:
            program.text()
        assert e.value.diagnostics[0].line == line


def test_wrong_uses():
    program = allreduce_oneshot(2)
    g = maco.Graph("g", 3)
    x = g.input("x", "f32", [6])
    with pytest.raises(maco.GraphError, match="of 2 ranks, but the graph 'g' of 3"):
        g.allreduce(x, algorithm=program)
    g = maco.Graph("g", 2)
    x = g.input("x", "f32", [6])
    with pytest.raises(maco.GraphError, match="of allreduce, not of 'allgather'") as e:
        g.allgather(x, algorithm=program)
    assert e.value.diagnostics[0].line == here(-1)
    with pytest.raises(maco.GraphError, match="reduces by 'sum', but the op by 'max'"):
        g.allreduce(x, "max", algorithm=program)
    with pytest.raises(maco.GraphError, match="of root 1, but the op of root 0"):
        g.broadcast(x, root=0, algorithm=broadcast_chain(2, root=1))
    with pytest.raises(TypeError, match="CollectiveProgram, not int"):
        g.allreduce(x, algorithm=3)
    with pytest.raises(TypeError, match="a collective"):
        g.collective(3)
    g.allreduce(x, algorithm=program)
    with CollectiveProgram("oneshot_of_all", AllGather(2, 1, False), 2) as other:
        pass
    with pytest.raises(maco.GraphError, match="another collective of the graph 'g' is called 'oneshot_of_all'"):
        g.allgather(x, algorithm=other)
    h = maco.Graph("h", 2)
    h.collective(program)
    x = h.input("x", "f32", [6])
    with pytest.raises(maco.GraphError, match="reduces by 'sum', but the op by 'max'"):
        h.allreduce(x, "max", algorithm=program.identifier)
    h.output("y", h.allreduce(x, algorithm=program.identifier))
    h.compile(target="cpu")


def test_message_sizes():
    program = allreduce_twoshot(2, min_message_size=64, max_message_size=256)

    def graph(rows, low=None):
        g = maco.Graph("g", 2)
        t = rows if low is None else g.dim("t", rows, min=low)
        x = g.input("x", "f32", [t, 4])
        h = g.relu(x)
        line = here(1)
        g.output("y", g.allreduce(h, algorithm=program))
        return g, line

    for good in (graph(4), graph(16), graph(16, 4)):
        good[0].compile(target="cpu")
    for (g, line), words in (
        (graph(3), "has 48"),
        (graph(17), "has 272"),
        (graph(16, 3), "has 48 to 256"),
        (graph(17, 4), "has 64 to 272"),
    ):
        for made in (g, pickle.loads(pickle.dumps(g))):
            with pytest.raises(maco.GraphError, match=words) as e:
                made.compile(target="cpu")
            assert (e.value.diagnostics[0].file, e.value.diagnostics[0].line) == (__file__, line)


def test_pickled_graphs_keep_lines():
    program, lines = broken("relaxed")
    g = maco.Graph("g", 2)
    g.output("y", g.allgather(g.input("x", "f32", [4]), algorithm=program))
    with pytest.raises(maco.GraphError, match="visible") as e:
        pickle.loads(pickle.dumps(g)).compile(target="cpu")
    assert e.value.diagnostics[0].line == lines["put"]


def test_every_line_is_known():
    """Each statement of the texts has the caller's line, of loops, groups, packets and instances too."""
    made = [
        *(one(3) for one in (allreduce_oneshot, allreduce_twoshot, allreduce_ring, allreduce_packets, allreduce_switch, broadcast_chain)),
        *(one(4) for one in (allgather_direct, allgather_ports, reduce_scatter_get, alltoall_scratch)),
        allreduce_packets(4, instances=2),
        pipelined(),
    ]
    for program in made:
        found = program._imported()
        # The first line, its head, is the program's.
        statements = [1] + [i for i, line in enumerate(found.text.splitlines(), 1) if line.startswith("  ") and line[2] != "#"]
        assert sorted(found.places) == [i for i in statements if "barrier(blocks = [0])" not in found.text.splitlines()[i - 1]]


def test_programs_in_threads():
    """Each thread has its own open program."""
    made = {}

    def work(n):
        made[n] = allreduce_twoshot(n).text()

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 4)]
    with CollectiveProgram("p", AllReduce(2), 2):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for n, text in made.items():
        assert f"world = {n}," in text and text == allreduce_twoshot(n).text()


def test_the_page_of_the_docs(checkout, python):
    page = (checkout / "docs" / "mscclpp.md").read_text(encoding="utf-8")
    done = python(page.partition("```python\n")[2].partition("```")[0])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("collective gather(of = allgather, world = 2, chunks = 1)")


def test_importing_maco_leaves_it_out(python):
    text = """if True:
        import sys
        import maco
        assert not any(name.startswith("maco.mscclpp") for name in sys.modules)
        import maco.mscclpp
        assert "torch" not in sys.modules and "numpy" not in sys.modules
    """
    done = python(text)
    assert done.returncode == 0, done.stderr


def test_star():
    names = {}
    exec("from maco.mscclpp import *", names)
    assert {"CollectiveProgram", "MemoryChannel", "Rank", "JSON", "Loop"} <= set(names)
