"""Collectives of bf16 over several GPUs, by size: MACO, NCCL in a CUDA graph and PyTorch's symmetric memory, in the same run.

`launch`: MACO's kernel with one collective, a launch of its own. `inside`: each of many collectives in a persistent kernel, one behind the
other, from the time of many and of one. Those of allreduce, alltoall, broadcast, ring_shift and send/recv take what the one before gave
(of send/recv there and back); those of allgather and reduce_scatter start when the one before has ended on their rank. Bytes are those of
the larger of a rank's operand and result."""
import comm_bench
import curves_svg
import gpu_bench
import library

KB, MB = 1 << 10, 1 << 20
SIZES = [4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB]
QUICK = [4 * KB, 256 * KB, 4 * MB, 64 * MB]  # of all patterns but allreduce
PATTERNS = ["allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "ring_shift", "send_recv"]


def repetitions(size):
    return 50 if size <= 256 * KB else 30 if size <= MB else 16 if size <= 4 * MB else 8 if size <= 16 * MB else 4


def shape_of(pattern, size, world):
    """(rows, columns) of the larger of operand and result; rows of up to 8192, as of activations."""
    elements = size // 2
    blocks = world if pattern in ("allgather", "reduce_scatter", "alltoall") else 1
    columns = min(8192, elements // blocks)
    return elements // columns, columns


def graph(pattern, size, world, count, extra=""):
    rows, columns = shape_of(pattern, size, world)
    whole, block = f"bf16[{rows}, {columns}]", f"bf16[{rows // world}, {columns}]"
    lines = [f"graph {pattern}(world = {world}) {{"]
    if pattern in ("allgather", "reduce_scatter"):
        # Each op has the same operand, and runs behind the one before.
        lines.append(f"  input x : {block if pattern == 'allgather' else whole}")
        for i in range(count):
            after = f", after = [y_{i - 1}]" if i else ""
            lines.append(f"  {'output ' if i + 1 == count else ''}y_{i} = {pattern}(x{extra}{after})")
        return "\n".join([*lines, "}", ""])
    lines.append(f"  input x_0 : {whole}")
    for i in range(count):
        out = f"output y : {whole}" if i + 1 == count else f"x_{i + 1}"
        if pattern == "send_recv":
            # Between neighbours, in pairs; the next one goes back.
            up, down = ("rank + 1", "rank % 2 == 0 && rank + 1 < world"), ("rank - 1", "rank % 2 == 1")
            (to, sends), (source, receives) = (up, down) if i % 2 == 0 else (down, up)
            lines += [f"  send(x_{i}, dst = {to}, if = {sends})",
                      f"  {out} = recv(src = {source}, shape = [{rows}, {columns}], dtype = bf16, if = {receives})"]
        else:
            root = f", root = {i % world}" if pattern == "broadcast" else ""
            lines.append(f"  {out} = {pattern}(x_{i}{root}{extra})")
    return "\n".join([*lines, "}", ""])


def check(args, world):
    """Three of each pattern, in packets, in tiles and with odd rows, against the reference; both ways of an allreduce."""
    graphs = {}
    for pattern in args.patterns.split(","):
        for size in (4 * KB, 256 * KB, 2 * MB):
            ways = [f", algorithm = {way}" for way in ("oneshot", "twoshot")] if pattern == "allreduce" else [""]
            graphs.update({f"{pattern} {comm_bench.size_name(size)}{way}": graph(pattern, size, world, 3, way) for way in ways})
    odd = f"graph odd(world = {world}) {{\n  input x : f16[37, 1003]\n  a = allreduce(x, reduce = max)\n"
    graphs["odd"] = odd + "  b = ring_shift(a, by = 1)\n  output y = allgather(b)\n}\n"
    comm_bench.check(args, graphs)


def answer(job, rank, world):
    """Peers' microseconds of a pattern and size."""
    import torch
    import torch.distributed as dist
    pattern, size, quick = job["pattern"], job["bytes"], job["quick"]
    inner = 20 if size <= MB else 10 if size <= 4 * MB else 5 if size <= 64 * MB else 3
    repeats = 6 if quick else 12
    elements = size // 2
    new = lambda n: torch.randn(n, device="cuda", dtype=torch.bfloat16) * 0.01
    x = new(elements)
    y = torch.empty_like(x)
    part = new(elements // world)
    turn = [0]

    def exchange(sends, receives):
        ways = [dist.P2POp(dist.isend, x, peer) for peer in sends] + [dist.P2POp(dist.irecv, y, peer) for peer in receives]
        for work in dist.batch_isend_irecv(ways):
            work.wait()

    def send_recv():
        turn[0] += 1
        if world % 2 == 1 and rank == world - 1:
            return
        peer = rank ^ 1
        exchange(*(([peer], []) if rank % 2 == turn[0] % 2 else ([], [peer])))

    steps = {
        "allreduce": lambda: dist.all_reduce(x),
        "allgather": lambda: dist.all_gather_into_tensor(y, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, x),
        "alltoall": lambda: dist.all_to_all_single(y, x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "ring_shift": lambda: exchange([(rank + 1) % world], [(rank - 1) % world]),
        "send_recv": send_recv,
    }
    found = {"nccl_us": comm_bench.graph_us(steps[pattern], inner, repeats)}
    if pattern != "allreduce":
        return found
    import torch.distributed._symmetric_memory as symmetric
    group = dist.group.WORLD.group_name
    buffer = symmetric.empty(elements, device="cuda", dtype=torch.bfloat16)
    symmetric.rendezvous(buffer, dist.group.WORLD)
    buffer.copy_(x)
    ways = {"two_shot": lambda: torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", group)}
    if size <= 4 * MB:
        ways["one_shot"] = lambda: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", group)
    times = {way: comm_bench.graph_us(step, inner, repeats) for way, step in ways.items()}
    found.update({f"{way}_us": us for way, us in times.items()})
    return {**found, "symm_us": min(times.values()), "symm_way": min(times, key=times.get)}


def draw(path, rows, worlds):
    if not path:
        return
    names = {"MACO inside": "inside_us", "MACO launch": "launch_us", "NCCL": "nccl_us", "symmetric memory": "symm_us"}
    colours = dict(zip(names, ("#d55e00", "#e69f00", "#0072b2", "#009e73")))
    panels = []
    for world in worlds:
        for pattern in PATTERNS:
            here = [row for row in rows if (row["gpus"], row["pattern"]) == (world, pattern)]
            series = {name: [(row["bytes"], row[key]) for row in here if (row.get(key) or 0) > 0] for name, key in names.items()}
            if any(series.values()):
                panels.append((f"{pattern}, {world} GPUs", "microseconds by bytes", {name: line for name, line in series.items() if line}))
    with open(path, "w") as file:
        file.write(curves_svg.draw("Collectives of bf16: " + gpu_bench.device(), panels, colours, " us"))


def main():
    parser = comm_bench.arguments(__doc__)
    parser.add_argument("--patterns", default=",".join(PATTERNS), help="which (default: all)")
    parser.add_argument("--sizes", help="bytes, with K or M (default: 4K to 256M)")
    parser.add_argument("--inner", default="", help="attributes of the collectives: 'algorithm = twoshot'")
    parser.add_argument("--no-launch", action="store_true", help="no launches of one collective: times inside have the launch in them")
    parser.add_argument("--check", action="store_true", help="first compare results with the reference (maco-run --check)")
    args = parser.parse_args()
    if args.peer_jobs:
        return comm_bench.serve_peers(args, answer)
    maco = comm_bench.open_library(args)
    bench = gpu_bench.Bench(args)
    number = lambda text: int(text[:-1]) * {"K": KB, "M": MB}[text[-1]] if text[-1] in "KM" else int(text)
    extra = f", {args.inner}" if args.inner else ""
    worlds = comm_bench.worlds(args, maco)
    for world in worlds:
        if args.check:
            check(args, world)
        cases = [(pattern, size) for pattern in args.patterns.split(",")
                 for size in (list(map(number, args.sizes.split(","))) if args.sizes else
                              QUICK if args.quick and pattern != "allreduce" else SIZES)]
        graphs = {}
        for pattern, size in cases:
            for count in {repetitions(size), *([] if args.no_launch else [1])}:
                graphs[f"{pattern} {comm_bench.size_name(size)} x {count}"] = graph(pattern, size, world, count, extra)
        times = comm_bench.measure(maco, graphs, 20 if args.quick else args.launches)
        jobs = [{"pattern": pattern, "bytes": size, "quick": args.quick} for pattern, size in cases]
        peers = [] if args.no_peers else comm_bench.ask_peers(__file__, world, jobs)
        for pattern, size in cases:
            count, name = repetitions(size), f"{pattern} {comm_bench.size_name(size)} x "
            one, many = times.get(f"{name}1"), times[f"{name}{count}"]
            row = {"pattern": pattern, "gpus": world, "bytes": size, "repeated": count, "launch_us": one,
                   "inside_us": (many and many / count) if args.no_launch else comm_bench.inside(many, one, count)}
            for found in peers:
                if (found["pattern"], found["bytes"]) == (pattern, size):
                    row.update({key: value for key, value in found.items() if key.endswith(("_us", "_way"))})
            best = [row[key] for key in ("nccl_us", "symm_us") if row.get(key)]
            if best and row["inside_us"]:
                row["ratio"] = round(min(best) / row["inside_us"], 3)
            bench.rows.append(row)
        us = comm_bench.us
        print(comm_bench.table([row for row in bench.rows if row["gpus"] == world], [
            ("pattern", -14, lambda r: r["pattern"]), ("GPUs", 4, lambda r: r["gpus"]),
            ("size", 6, lambda r: comm_bench.size_name(r["bytes"])), ("inside us", 9, us("inside_us")), ("launch us", 9, us("launch_us")),
            ("NCCL us", 8, us("nccl_us")), ("symm us", 8, us("symm_us")), ("way", 8, lambda r: r.get("symm_way", "-")),
            ("best/inside", 11, lambda r: f"{r['ratio']:.2f}" if r.get("ratio") else "-")]), flush=True)
    draw(args.svg, bench.rows, worlds)
    comm_bench.finish(args, bench, {"dtype": "bf16"})


if __name__ == "__main__":
    main()
