"""A product of bf16 and the all-reduce of its result, as in tensor-parallel layers over several GPUs: [M, K / world] x [8192, K / world]^T,
K = 8192 (o) or 28672 (down). MACO beside PyTorch in the same run: cuBLAS, then NCCL or symmetric memory, in a CUDA graph.

`inside`: each of several layers in a persistent kernel, whose product starts when the all-reduce before it has ended, from the time of
several and of one; `launch`: one layer, a launch of its own. `product`, `allreduce`: these alone, launches of their own. Overlap: how much
of the shorter one the launch of both hides, (product + allreduce - launch) / min(product, allreduce)."""
import comm_bench
import gpu_bench

HIDDEN, DEPTH = 8192, {"o": 8192, "down": 28672}
ROWS = [1, 16, 64, 256, 1024, 8192]
COUNT = {1: 12, 16: 12, 64: 12, 256: 8}  # layers in a kernel; 3 of more rows


def graph(rows, depth, world, count, extra="", roles=""):
    lines = [f"graph product_allreduce(world = {world}) {{", *([f"  set sm_roles = {roles}"] if roles else []),
             f"  input x : bf16[{rows}, {depth // world}]",
             f"  param w : bf16[{HIDDEN}, {depth // world}]"]
    for i in range(count):
        after = f", after = [y_{i - 1}]" if i else ""
        lines += [f"  p_{i} = matmul(x, w, transpose_b = true{after})",
                  f"  {'output ' if i + 1 == count else ''}y_{i} = allreduce(p_{i}{extra})"]
    return "\n".join([*lines, "}", ""])


def product(rows, depth, world):
    return "\n".join([f"graph product(world = {world}) {{", f"  input x : bf16[{rows}, {depth // world}]",
                      f"  param w : bf16[{HIDDEN}, {depth // world}]", "  output y = matmul(x, w, transpose_b = true)", "}", ""])


def allreduce(rows, world, extra=""):
    return "\n".join([f"graph allreduce(world = {world}) {{", f"  input x : bf16[{rows}, {HIDDEN}]",
                      f"  output y = allreduce(x{extra})", "}", ""])


def answer(job, rank, world):
    """Peers' microseconds for M rows and a layer."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    rows, depth, quick = job["rows"], DEPTH[job["layer"]] // world, job["quick"]
    inner, repeats = 10 if rows <= 256 else 3, 5 if quick else 12
    x = torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16) / depth**0.5
    w = torch.randn(HIDDEN, depth, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    group = dist.group.WORLD.group_name
    shared = symmetric.empty(rows * HIDDEN, device="cuda", dtype=torch.bfloat16)
    symmetric.rendezvous(shared, dist.group.WORLD)
    into = shared.view(rows, HIDDEN)

    def with_nccl():
        torch.mm(x, w.t(), out=y)
        dist.all_reduce(y)

    def with_symmetric():
        torch.mm(x, w.t(), out=into)
        if rows <= 16:
            torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group)
        else:
            torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group)

    steps = {"cublas_us": lambda: torch.mm(x, w.t(), out=y), "nccl_us": lambda: dist.all_reduce(y), "with_nccl_us": with_nccl,
             "with_symm_us": with_symmetric}
    return {name: comm_bench.graph_us(step, inner, repeats) for name, step in steps.items()}


def main():
    parser = comm_bench.arguments(__doc__)
    parser.add_argument("--rows", help="values of M (default: 1 to 8192)")
    parser.add_argument("--layers", default="o,down", help="which (default: both)")
    parser.add_argument("--inner", default="", help="attributes of the all-reduce: 'algorithm = twoshot'")
    parser.add_argument("--roles", default="", help="of both together: '{compute: 124, comm: 8}'")
    args = parser.parse_args()
    if args.peer_jobs:
        return comm_bench.serve_peers(args, answer)
    maco = comm_bench.open_library(args)
    bench = gpu_bench.Bench(args)
    extra = f", {args.inner}" if args.inner else ""
    cases = [(rows, layer) for rows in (map(int, args.rows.split(",")) if args.rows else ROWS) for layer in args.layers.split(",")]
    for world in comm_bench.worlds(args, maco):
        graphs = {}
        for rows, layer in cases:
            for count in (1, COUNT.get(rows, 3)):
                graphs[f"{rows} {layer} x {count}"] = graph(rows, DEPTH[layer], world, count, extra, args.roles)
            graphs[f"{rows} {layer} product"] = product(rows, DEPTH[layer], world)
            graphs[f"{rows} allreduce"] = allreduce(rows, world, extra)
        times = comm_bench.measure(maco, graphs, 10 if args.quick else args.launches)
        jobs = [{"rows": rows, "layer": layer, "quick": args.quick} for rows, layer in cases]
        peers = [] if args.no_peers else comm_bench.ask_peers(__file__, world, jobs)
        for rows, layer in cases:
            count, name = COUNT.get(rows, 3), f"{rows} {layer} "
            one, many = times[f"{name}x 1"], times[f"{name}x {count}"]
            alone = [times[f"{name}product"], times[f"{rows} allreduce"]]
            row = {"M": rows, "layer": layer, "gpus": world, "repeated": count, "inside_us": comm_bench.inside(many, one, count),
                   "launch_us": one, "product_us": alone[0], "allreduce_us": alone[1]}
            if one and all(alone):
                row["overlap"] = round((sum(alone) - one) / min(alone), 3)
            for found in peers:
                if (found["rows"], found["layer"]) == (rows, layer):
                    row.update({key: value for key, value in found.items() if key.endswith("_us")})
            best = [row[key] for key in ("with_nccl_us", "with_symm_us") if row.get(key)]
            if best and row["inside_us"]:
                row["ratio"] = round(min(best) / row["inside_us"], 3)
            bench.rows.append(row)
        us = comm_bench.us
        print(comm_bench.table([row for row in bench.rows if row["gpus"] == world], [
            ("M", 4, lambda r: r["M"]), ("layer", -5, lambda r: r["layer"]), ("GPUs", 4, lambda r: r["gpus"]),
            ("inside us", 9, us("inside_us")), ("launch us", 9, us("launch_us")), ("product", 7, us("product_us")),
            ("allreduce", 9, us("allreduce_us")), ("overlap", 7, lambda r: f"{r['overlap']:.2f}" if "overlap" in r else "-"),
            ("cuBLAS", 7, us("cublas_us")), ("NCCL", 7, us("nccl_us")),
            ("both, NCCL", 10, us("with_nccl_us")), ("both, symm", 10, us("with_symm_us")),
            ("best/inside", 11, lambda r: f"{r['ratio']:.2f}" if r.get("ratio") else "-")]), flush=True)
    comm_bench.finish(args, bench, {"dtype": "bf16"})


if __name__ == "__main__":
    main()
