"""Products [M,K] x [N,K]^T in bf16 beside cuBLAS (PyTorch, one CUDA graph), in the same run: chains of several products, so that weights
come from memory. A chain's factor of the peer's speed is its time over ours."""
import gpu_bench


def graph(m, n, k, count):
    """Products there and back: [M,K] -> [M,N] -> [M,K] ..."""
    lines = ["graph products {", f"  input x_0 : bf16[{m}, {k}]"]
    for i in range(count):
        rows, columns = (n, k) if i % 2 == 0 else (k, n)
        lines.append(f"  param w_{i} : bf16[{rows}, {columns}]")
        out = f"output y : bf16[{m}, {rows}]" if i + 1 == count else f"x_{i + 1}"
        lines.append(f"  {out} = matmul(x_{i}, w_{i}, transpose_b = true)")
    return "\n".join([*lines, "}", ""])


def peer(m, n, k, count, launches):
    import torch
    weights = [torch.randn(*((n, k) if i % 2 == 0 else (k, n)), device="cuda", dtype=torch.bfloat16) * 0.01 for i in range(count)]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)

    def step():
        y = x
        for w in weights:
            y = torch.nn.functional.linear(y, w)
        return y

    with torch.no_grad():
        return gpu_bench.peer_us(step, launches)


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,128,256,512,1024,2048", help="values of M")
    parser.add_argument("--shape", action="append", help="N,K,COUNT (default: 8192,8192,8)")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    series = {}
    for shape in args.shape or ["8192,8192,8"]:
        n, k, count = map(int, shape.split(","))
        for m in map(int, args.rows.split(",")):
            ours = bench.maco(f"products-{m}-{n}-{k}", graph(m, n, k, count))
            theirs = None if args.no_peers else peer(m, n, k, count, args.launches)
            flops, size = 2.0 * m * n * k * count, 2.0 * n * k * count
            bench.add(M=m, N=n, K=k, products=count, maco_us=ours, peer_us=theirs,
                      tflops=None if not ours else round(flops / ours / 1e6, 1),
                      weights_gb_s=None if not ours else round(size / ours / 1e3))
            if ours and theirs:
                series.setdefault(f"{n} x {k}", []).append((m, theirs / ours))
    gpu_bench.plot(args.svg, "Speed of products, cuBLAS = 1", "M", series)
    bench.finish()


if __name__ == "__main__":
    main()
