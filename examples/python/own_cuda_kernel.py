"""A CUDA kernel of one's own as an op: its blocks become tasks, and an all-reduce behind it begins as they end."""

import torch

import maco

started = maco.get_world_size()  # processes
WORLD = started if started > 1 else 2  # else two ranks in this process
DEVICE = "cuda" if torch.cuda.device_count() >= WORLD else "cpu"
ROWS, COLUMNS = 30, 64

graph = maco.Graph("scaled", WORLD)
x = graph.input("x", "f32", [ROWS, COLUMNS])
factors = graph.input("factors", "f32", [ROWS])
mine = [["4 * bx", "4 * bx + 4"]]  # the rows of block bx, which may be too many: ranges are clipped to the tensor
scaled = graph.cuda(
    x,
    factors,
    source="own_cuda_kernel.cu",  # beside this file
    kernel="scale_rows",
    grid=[(ROWS + 3) // 4],
    block=[32, 4],
    args=[ROWS, COLUMNS, x, factors, "scaled"],
    types={"scaled": ("f32", [ROWS, COLUMNS])},
    reads={x: mine, factors: mine},
    writes={"scaled": mine},
)
graph.output("y", graph.allreduce(scaled))
try:
    kernel = graph.compile(target="cpu" if DEVICE == "cpu" else None)
except maco.Error as error:
    if "Clang" not in str(error) and "CUDA toolkit" not in str(error):
        raise
    print(f"not run: {error}")
    raise SystemExit(0) from None

torch.manual_seed(0)
xs, fs = torch.randn(WORLD, ROWS, COLUMNS), torch.randn(WORLD, ROWS)
with maco.Session(kernel, device=DEVICE, process_a_rank=started > 1) as session:
    session.allocate()
    for rank in session.ranks:
        session.write("x", xs[rank], rank)
        session.write("factors", fs[rank], rank)
    session.run()
    for rank in session.ranks:
        torch.testing.assert_close(session.read("y", rank, to="torch"), (xs * fs[:, :, None]).sum(0), rtol=1e-5, atol=1e-5)
    print(f"ranks {list(session.ranks)} of {WORLD}: scale_rows and an all-reduce in one kernel on {DEVICE}")
