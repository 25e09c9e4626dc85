"""Level 1: a function that multiplies and communicates becomes one kernel, by a decorator."""

import os

import torch

import maco

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"

maco.init()
rank, world = maco.get_rank(), maco.get_world_size()


@maco.optimize_comm(strict=True)  # strict: an op that MACO can't compute is an error instead of torch's
def layer(x, weight):
    return torch.relu(maco.allreduce(x @ weight))


# The inner axis of the product is cut: each rank has its columns of x and its rows of the weight, and the all-reduce adds the parts.
torch.manual_seed(0)
whole_x, whole_weight = torch.randn(16, 64 * world), torch.randn(64 * world, 32)
mine = slice(rank * 64, (rank + 1) * 64)
x, weight = whole_x[:, mine].contiguous().to(DEVICE), whole_weight[mine].contiguous().to(DEVICE)

for step in range(3):
    y = layer(x, weight)
    torch.testing.assert_close(y.cpu(), torch.relu(whole_x @ whole_weight), rtol=1e-3, atol=1e-3)
    x, whole_x = x * 0.5, whole_x * 0.5  # other values, the same kernel

print(f"rank {rank} of {world}: relu(allreduce(x @ weight)) on {DEVICE}, {step + 1} times, as torch computes it")
