"""Programs in MSCCL++'s language: what they are written as, that they are proved and run."""

import json
import threading

import numpy as np
import pytest
from mscclpp_programs import (
    RANKS,
    allgather_direct,
    allgather_ports,
    allreduce_oneshot,
    allreduce_packets,
    allreduce_ring,
    allreduce_switch,
    allreduce_twoshot,
    alltoall_scratch,
    broadcast_chain,
    compare,
    greet,
    meet,
    mesh,
    numbers,
    others,
    pipelined,
    reduce_scatter_get,
    run,
)

import maco
from maco.mscclpp import (
    JSON,
    AlgoSpec,
    AllGather,
    AllReduce,
    Buffer,
    BufferType,
    Channel,
    ChannelType,
    CollectiveProgram,
    Loop,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    Semaphore,
    SwitchChannel,
    SyncType,
    TestCollective,
    ThreadBlockGroup,
)


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
