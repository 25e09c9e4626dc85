"""Products [M,K] x [N,K]^T in bf16 or f8e4m3, compared with cuBLAS (PyTorch, one CUDA graph) in the same run. Each is a chain of several
products, so that weights come from memory. A chain's factor of the peer's speed is the peer's time over ours."""
import argparse
import math

import gpu_bench


def graph(m, n, k, count, dtype):
    """A chain of products: [M,K] -> [M,N] -> [M,K] ..."""
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


def layers(text):
    """Numbers of ranks, and rows if it names some."""
    ranks, _, rows = text.partition(":")
    counts = [int(w) for w in ranks.split(",")]
    if not set(counts) <= {1, 2, 4, 8}:
        raise argparse.ArgumentTypeError(f"its 8 heads of keys divide among 1, 2, 4 or 8 ranks, not {ranks}")
    return counts, rows


def layer_shapes(ranks):
    """The products that each of `ranks` ranks has: name, N, K and how many are chained."""
    for layer, n, k in (("qkv", 10240 // ranks, 8192), ("o", 8192, 8192 // ranks), ("gate+up", 57344 // ranks, 8192),
                        ("down", 8192, 28672 // ranks)):
        yield layer, n, k, 4 if n * k < 60e6 else 2


def chains(args):
    """What names a chain, its N, K and number of products, and rows."""
    for counts, rows in args.llama_70b or []:
        for ranks in counts:
            for layer, n, k, count in layer_shapes(ranks):
                yield {"ranks": ranks, "layer": layer}, n, k, count, rows or args.rows
    if not args.llama_70b:
        for shape in args.shape or ["8192,8192,8"]:
            yield {}, *map(int, shape.split(",")), args.rows


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def curves(rows):
    """cuBLAS's time over MACO's by M: of each shape, or for layers the geometric mean of those over so many ranks."""
    ratios = {}
    for row in rows:
        if row.get("maco_us") and row.get("peer_us"):
            name = f"{row['ranks']} rank{'s' * (row['ranks'] > 1)}" if "ranks" in row else f"{row['N']} x {row['K']}"
            ratios.setdefault(name, {}).setdefault(row["M"], []).append(row["peer_us"] / row["maco_us"])
    return {name: [(m, mean(of)) for m, of in by_rows.items()] for name, by_rows in ratios.items()}


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,128,256,512,1024,2048", help="values of M")
    parser.add_argument("--shape", action="append", help="N,K,COUNT (default: 8192,8192,8)")
    parser.add_argument("--llama-70b", metavar="RANKS[:ROWS]", type=layers, action="append",
                        help="in place of --shape: a layer of Llama-70B over so many ranks, as in 8:1,64 or 4,2,1 (rows: those of --rows)")
    parser.add_argument("--dtype", choices=["bf16", "f8e4m3"], default="bf16", help="of operands and results (default: bf16)")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    for named, n, k, count, rows in chains(args):
        for m in map(int, rows.split(",")):
            ours = bench.maco(f"products-{m}-{n}-{k}", graph(m, n, k, count, args.dtype))
            theirs = None if args.no_peers else peer(m, n, k, count, args.launches, args.dtype)
            flops, size = 2.0 * m * n * k * count, (1.0 if args.dtype == "f8e4m3" else 2.0) * n * k * count
            bench.add(**named, dtype=args.dtype, M=m, N=n, K=k, products=count, maco_us=ours, peer_us=theirs,
                      tflops=None if not ours else round(flops / ours / 1e6, 1),
                      weights_gb_s=None if not ours else round(size / ours / 1e3))
    ratios = [row["peer_us"] / row["maco_us"] for row in bench.rows if row.get("maco_us") and row.get("peer_us")]
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios {mean(ratios):.3f}, least {min(ratios):.3f}")
    gpu_bench.plot(args.svg, "Speed of products, cuBLAS = 1", "M", curves(bench.rows))
    bench.finish()


if __name__ == "__main__":
    main()
