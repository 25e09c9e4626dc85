"""MACO below torch.distributed: a process group whose collectives are MACO's, DistributedDataParallel over it, and the patch."""

import os
import socket

import torch
import torch.distributed as dist
from torch import nn

import maco

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"

if "RANK" not in os.environ:  # not started by torchrun: one rank
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(one.getsockname()[1]))

if DEVICE != "cpu":
    torch.cuda.set_device(DEVICE)
dist.init_process_group("cpu:maco,cuda:maco")  # the name is known once maco is imported
rank, world = dist.get_rank(), dist.get_world_size()

# Collectives.
x = torch.full((1000,), rank + 1.0, device=DEVICE)
dist.all_reduce(x)
torch.testing.assert_close(x.cpu(), torch.full((1000,), world * (world + 1) / 2))
parts = torch.empty(world * 2, device=DEVICE)
dist.all_gather_into_tensor(parts, torch.full((2,), float(rank), device=DEVICE))
torch.testing.assert_close(parts.cpu(), torch.arange(world).repeat_interleave(2).float())
print(f"rank {rank} of {world}: all_reduce and all_gather_into_tensor by the backend '{dist.get_backend()}' on {DEVICE}")

# DistributedDataParallel: its buckets are all-reduced by MACO.
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)
data = torch.randn(world, 8, 16, device=DEVICE)
parallel = nn.parallel.DistributedDataParallel(model)
parallel(data[rank]).square().mean().backward()
own = [one.grad.clone() for one in model.parameters()]
model.zero_grad()
model(data.flatten(0, 1)).square().mean().backward()  # the whole batch on one rank
for found, one in zip(own, model.parameters(), strict=True):
    torch.testing.assert_close(found, one.grad, rtol=1e-4, atol=1e-6)
print(f"rank {rank} of {world}: gradients of DistributedDataParallel, as those of the whole batch")

# A process group of another backend stays as it is; torch.distributed's functions go to MACO between patch and undo.
undo = maco.patch_torch_distributed(min_bytes=1024)
y = torch.ones(4096, device=DEVICE)
dist.all_reduce(y, op=dist.ReduceOp.MAX)
undo()
torch.testing.assert_close(y, torch.ones_like(y))
print(f"rank {rank} of {world}: all_reduce through patch_torch_distributed()")

dist.destroy_process_group()
