"""Level 2: a context says how many SMs compute and how many communicate; what is called in it overlaps."""

import os

import torch

import maco

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
COMPUTE, COMM = (96, 32) if DEVICE != "cpu" else (6, 2)  # the CPU target has 8 SMs, unless MACO_CPU_SMS says otherwise

maco.init()
rank, world = maco.get_rank(), maco.get_world_size()

torch.manual_seed(0)
every = [torch.randn(16, 64) for _ in range(world)]
w1, w2 = torch.randn(64, 32), torch.randn(64, 48)
x, a, b = every[rank].clone().to(DEVICE), w1.to(DEVICE), w2.to(DEVICE)

ctx = maco.Context(compute_sms=COMPUTE, comm_sms=COMM)
for step in range(2):
    with ctx:
        y = ctx.compute(torch.matmul, x, a)
        reduced = ctx.allreduce(y)  # begins as tiles of y are there
        z = ctx.compute(torch.matmul, x, b)  # meanwhile
    # All of it ran as one kernel when the block ended.
    torch.testing.assert_close(reduced.wait().cpu(), sum(one @ w1 for one in every), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(z.wait().cpu(), every[rank] @ w2, rtol=1e-3, atol=1e-3)
    x.mul_(2)
    every = [one * 2 for one in every]

print(f"rank {rank} of {world}: an all-reduce beside a product on {COMPUTE} + {COMM} SMs of {DEVICE}, {step + 1} times")
