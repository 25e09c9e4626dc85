"""Products [M,K] x [N,K]^T in bf16 or f8e4m3 beside cuBLAS (PyTorch, one CUDA graph), in the same run: chains of several products, so that
weights come from memory. A chain's factor of the peer's speed is its time over ours."""
import argparse
import math

import gpu_bench


def graph(m, n, k, count, dtype):
    """Products there and back: [M,K] -> [M,N] -> [M,K] ..."""
    lines = ["graph products {", f"  input x_0 : {dtype}[{m}, {k}]"]
    for i in range(count):
        rows, columns = (n, k) if i % 2 == 0 else (k, n)
        lines.append(f"  param w_{i} : {dtype}[{rows}, {columns}]")
        out = f"output y : {dtype}[{m}, {rows}]" if i + 1 == count else f"x_{i + 1}"
        lines.append(f"  {out} = matmul(x_{i}, w_{i}, transpose_b = true)")
    return "\n".join([*lines, "}", ""])


def peer(m, n, k, count, launches, dtype):
    import torch
    eight = dtype == "f8e4m3"
    own = lambda t: t.to(torch.float8_e4m3fn) if eight else t
    weights = [own(torch.randn(*((n, k) if i % 2 == 0 else (k, n)), device="cuda", dtype=torch.bfloat16) * 0.01) for i in range(count)]
    x = own(torch.randn(m, k, device="cuda", dtype=torch.bfloat16))
    one = torch.ones((), device="cuda")

    def product(y, w):
        if eight:
            return torch._scaled_mm(y, w.t(), scale_a=one, scale_b=one, out_dtype=torch.float8_e4m3fn, use_fast_accum=False)
        return torch.nn.functional.linear(y, w)

    def step():
        y = x
        for w in weights:
            y = product(y, w)
        return y

    with torch.no_grad():
        return gpu_bench.peer_us(step, launches)


def rank_counts(text):
    counts = [int(w) for w in text.split(",")]
    if not set(counts) <= {1, 2, 4, 8}:
        raise argparse.ArgumentTypeError(f"its 8 heads of keys divide among 1, 2, 4 or 8 ranks, not {text}")
    return counts


def layer_shapes(ranks):
    """Queries, keys and values; o; gate and up as one; down: N,K,COUNT of what a rank has."""
    for w in ranks:
        for n, k in ((10240 // w, 8192), (8192, 8192 // w), (57344 // w, 8192), (8192, 28672 // w)):
            yield f"{n},{k},{4 if n * k < 60e6 else 2}"


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,128,256,512,1024,2048", help="values of M")
    parser.add_argument("--shape", action="append", help="N,K,COUNT (default: 8192,8192,8)")
    parser.add_argument("--llama-70b", metavar="RANKS", type=rank_counts,
                        help="in place of --shape: a layer of Llama-70B over so many ranks, as in 1,2,4,8")
    parser.add_argument("--dtype", choices=["bf16", "f8e4m3"], default="bf16", help="of operands and results (default: bf16)")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    series = {}
    for shape in layer_shapes(args.llama_70b) if args.llama_70b else args.shape or ["8192,8192,8"]:
        n, k, count = map(int, shape.split(","))
        for m in map(int, args.rows.split(",")):
            ours = bench.maco(f"products-{m}-{n}-{k}", graph(m, n, k, count, args.dtype))
            theirs = None if args.no_peers else peer(m, n, k, count, args.launches, args.dtype)
            flops, size = 2.0 * m * n * k * count, (1.0 if args.dtype == "f8e4m3" else 2.0) * n * k * count
            bench.add(dtype=args.dtype, M=m, N=n, K=k, products=count, maco_us=ours, peer_us=theirs,
                      tflops=None if not ours else round(flops / ours / 1e6, 1),
                      weights_gb_s=None if not ours else round(size / ours / 1e3))
            if ours and theirs:
                series.setdefault(f"{n} x {k}", []).append((m, theirs / ours))
    ratios = [ratio for points in series.values() for _, ratio in points]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} ratios {mean:.3f}, least {min(ratios):.3f}")
    gpu_bench.plot(args.svg, "Speed of products, cuBLAS = 1", "M", series)
    bench.finish()


if __name__ == "__main__":
    main()
