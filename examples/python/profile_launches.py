"""Where the time goes: a table of ops with what overlapped, and a trace for Perfetto."""

import json
import os
import tempfile

import torch

import maco

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"

maco.init()
rank, world = maco.get_rank(), maco.get_world_size()


@maco.optimize
def mlp(x, up, down):
    h = torch.nn.functional.silu(x @ up.T)
    return x + maco.allreduce(h @ down.T, overlap_group="mlp")


torch.manual_seed(rank)
x, up, down = torch.ones(32, 64, device=DEVICE), torch.randn(128, 64, device=DEVICE), torch.randn(64, 128, device=DEVICE)
mlp(x, up, down)  # compiled here, so that the block below only runs it

with maco.profiler() as prof:  # all ranks enter it together
    for _ in range(3):
        mlp(x, up, down)

if rank == 0:
    prof.print_summary()
assert prof.table and all(row["Runs"] == 3 and row["Time(ms)"] >= 0 for row in prof.table), prof.table
assert 0 <= prof.overlap_efficiency <= 1

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, f"trace.{rank}.json")
    prof.export_chrome_trace(path)  # for https://ui.perfetto.dev
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
tasks = sum(event["ph"] == "X" for event in events)
assert tasks > 0
print(f"rank {rank} of {world}: {len(prof.table)} ops on {DEVICE}, 3 launches, {tasks} spans in the trace")
