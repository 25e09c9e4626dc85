"""A collective of one's own: an all-reduce in MSCCL++'s language as the algorithm of an op.

Started by torchrun each process runs a rank; else two ranks run in this process, as threads or on two GPUs.
"""

import torch

import maco
from maco.mscclpp import AllReduce, CollectiveProgram, MemoryChannel, Rank, SyncType

started = maco.get_world_size()  # processes
WORLD = started if started > 1 else 2
DEVICE = "cuda" if torch.cuda.device_count() >= WORLD else "cpu"


def two_steps(world):
    """Rank r adds up chunk r of all inputs, reading the others' where they lie; then each takes the finished chunks of the others."""
    with CollectiveProgram("two_steps", AllReduce(world, chunk_factor=1, inplace=False), world) as program:
        channels = {(a, b): MemoryChannel(b, a) for a in range(world) for b in range(world) if a != b}
        for me in range(world):
            others = [r for r in range(world) if r != me]
            inputs, outputs = Rank(me).get_input_buffer(), Rank(me).get_output_buffer()
            own = outputs[me : me + 1]
            Rank(me).copy(own, inputs[me : me + 1], tb=0)
            for other in others:
                channels[me, other].reduce(own, [Rank(other).get_input_buffer()[me : me + 1]], tb=0, local_dst_chunk=own)
            for other in others:
                channels[me, other].signal(tb=0, data_sync=SyncType.before)
            for other in others:
                channels[me, other].wait(tb=0, data_sync=SyncType.after)
            for other in others:
                channels[me, other].get(outputs[other : other + 1], Rank(other).get_output_buffer()[other : other + 1], tb=0)
    return program


program = two_steps(WORLD)
program.check("f32")  # no races, no deadlock, and the sum in every run

graph = maco.Graph("own", WORLD)
x = graph.input("x", "f32", [64, 128])
graph.output("y", graph.allreduce(x, algorithm=program))
kernel = graph.compile(target="cpu" if DEVICE == "cpu" else None)

torch.manual_seed(0)
every = torch.randn(WORLD, 64, 128)
with maco.Session(kernel, device=DEVICE, process_a_rank=started > 1) as session:
    session.allocate()
    for rank in session.ranks:
        session.write("x", every[rank], rank)
    session.run()
    for rank in session.ranks:
        torch.testing.assert_close(session.read("y", rank, to="torch"), every.sum(0), rtol=1e-5, atol=1e-5)
    print(
        f"ranks {', '.join(map(str, session.ranks))} of {WORLD}: the all-reduce '{program.name}' on {DEVICE}, proved and as torch adds up"
    )
