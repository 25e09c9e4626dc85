"""Mistakes in programs in MSCCL++'s language, each at its caller's line, and what such programs can't be used for."""

import inspect
import json
import pickle

import pytest
from mscclpp_programs import (
    allreduce_oneshot,
    allreduce_twoshot,
    broadcast_chain,
    compare,
    greet,
    here,
    meet,
    mesh,
    pipelined,
)

import maco
from maco.mscclpp import (
    JSON,
    AllGather,
    AllReduce,
    Broadcast,
    Buffer,
    BufferType,
    Channel,
    Chunk,
    Collective,
    CollectiveProgram,
    Loop,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReplicationPolicy,
    Semaphore,
    SendRecv,
    SwitchChannel,
    TestCollective,
    ThreadBlockGroup,
)

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


def proved_wrong(program, words, lines, file=__file__):
    """Compiling a graph with it fails with these words, at one of these lines of the file."""
    with pytest.raises(maco.GraphError, match=words) as e:
        program.check()
    one = e.value.diagnostics[0]
    assert one.file == file and one.line in lines, str(e.value)
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
    proved_wrong(program, "which of them comes first would decide", range(first, first + len(source)), inspect.getsourcefile(meet))


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
    assert (e.value.diagnostics[0].file, e.value.diagnostics[0].line) == (inspect.getsourcefile(allreduce_oneshot), line)
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
