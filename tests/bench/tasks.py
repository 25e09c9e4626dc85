"""Small tasks: a chain of dependent ones, independent ones, and equal ones on more and more workers, beside nodes of a CUDA graph of
PyTorch in the same run. Times include the launch."""
import gpu_bench


def chain(count):
    lines = ["graph chain {", "  input x_0 : f32[1, 128]"]
    for i in range(count):
        out = "output y" if i + 1 == count else f"x_{i + 1}"
        lines.append(f"  {out} = softmax(x_{i})")
    return "\n".join([*lines, "}", ""])


def independent(count):
    lines = ["graph independent {", "  input x : f32[1, 128]"]
    lines += [f"  output y_{i} = softmax(x)" for i in range(count)]
    return "\n".join([*lines, "}", ""])


def equal(count, workers):
    """Tasks that compute and touch little memory."""
    lines = ["graph equal {", "  input x : f32[1, 8192]", f"  set sm_roles = {{compute: {workers}}}"]
    lines += [f"  output y_{i} = softmax(x)" for i in range(count)]
    return "\n".join([*lines, "}", ""])


def peer(count, dependent, launches):
    import torch
    x = torch.randn(1, 128, device="cuda")

    def step():
        y = x
        for _ in range(count):
            y = torch.softmax(y if dependent else x, -1)
        return y

    return gpu_bench.peer_us(step, launches)


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--count", type=int, default=1000, help="tasks of the chain and of the independent ones")
    parser.add_argument("--equal", type=int, nargs="+", default=[1320, 13200], help="equal tasks, shared out to more and more workers")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    for name, graph, dependent in (("chain", chain(args.count), True), ("independent", independent(args.count), False)):
        ours = bench.maco(name, graph)
        theirs = None if args.no_peers else peer(args.count, dependent, args.launches)
        bench.add(tasks=name, count=args.count, maco_us=ours, peer_us=theirs, us_a_task=None if not ours else round(ours / args.count, 3))
    # With few tasks, the launch and each worker's first task take much of the time. With many, the workers' rate shows.
    series = {"linear": []}
    for count in args.equal:
        one, speeds = None, []
        for workers in (1, 2, 4, 8, 16, 33, 66, 132):
            ours = bench.maco(f"equal-{count}-{workers}", equal(count, workers))
            if not ours:
                continue
            one = one or ours * workers
            bench.add(tasks="equal", count=count, workers=workers, maco_us=ours, speed=round(one / ours, 2),
                      of_linear=round(one / ours / workers, 3))
            speeds.append((workers, one / ours))
            series["linear"].append((workers, workers))
        series[f"{count} tasks"] = speeds
    series["linear"] = sorted(set(series["linear"]))
    gpu_bench.plot(args.svg, "Equal tasks: speed against one worker", "workers", series)
    bench.finish()


if __name__ == "__main__":
    main()
