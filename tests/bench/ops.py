"""Single ops on one GPU beside PyTorch (through torch.compile where it is more than one kernel): what moves or maps elements, norms and
reductions, products of all types and of shapes that no tensor map describes, attention of many queries with heads of all sizes. Shows which
op is far off."""
import itertools

import gpu_bench

ROWS = 4096


def random(*shape, dtype="bfloat16"):
    import torch
    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def compiled(function, *shapes, dtype="bfloat16"):
    """A peer: `function` of random tensors of these shapes."""
    def make():
        import torch
        operands, step = [random(*shape, dtype=dtype) for shape in shapes], torch.compile(function)
        return lambda: step(*operands)
    return make


def graph(result, *declared):
    return "graph op {\n" + "".join(f"  {line}\n" for line in declared) + f"  output y = {result}\n}}\n"


def elementwise():
    import torch
    import torch.nn.functional as f
    a, b = f"input a : bf16[{ROWS}, 8192]", f"input b : bf16[{ROWS}, 8192]"
    one, two = (ROWS, 8192), [(ROWS, 8192)] * 2
    yield "add", graph("add(a, b)", a, b), compiled(torch.add, *two)
    yield "scale", graph("mul(a, value = 2.5)", a), compiled(lambda x: x * 2.5, one)
    yield "gelu", graph("gelu(a)", a), compiled(f.gelu, one)
    yield "swiglu", graph("swiglu(a, b)", a, b), compiled(lambda x, y: f.silu(x) * y, *two)
    yield "cast to f32", graph("cast(a, dtype = f32)", a), compiled(lambda x: x.float(), one)
    yield "copy", graph("copy(a)", a), compiled(lambda x: x.clone(), one)


def rows():
    import torch
    import torch.nn.functional as f
    w, b = "param w : bf16[8192]", "param b : bf16[8192]"
    for r in (16, ROWS):
        a = f"input a : bf16[{r}, 8192]"
        yield f"rmsnorm, {r} rows", graph("rmsnorm(a, w)", a, w), compiled(lambda x, w: f.rms_norm(x, (8192,), w, 1e-6), (r, 8192), (8192,))
        yield f"layernorm, {r} rows", graph("layernorm(a, w, b)", a, w, b), compiled(
            lambda x, w, b: f.layer_norm(x, (8192,), w, b), (r, 8192), (8192,), (8192,))
    for r, n in ((4096, 4096), (64, 128256), (65536, 128)):
        yield f"softmax, {r} x {n}", graph("softmax(a)", f"input a : bf16[{r}, {n}]"), compiled(lambda x: x.softmax(-1), (r, n))
    for r, n in ((1, 128256), (64, 128256)):
        yield f"argmax, {r} x {n}", graph("argmax(a)", f"input a : bf16[{r}, {n}]"), compiled(lambda x: x.argmax(-1), (r, n))
    for r, n in ((4096, 8192), (8, 1000000)):
        yield f"sum, {r} x {n}", graph("sum(a)", f"input a : bf16[{r}, {n}]"), compiled(lambda x: torch.sum(x, -1), (r, n))


def movement():
    import torch
    a = f"input a : bf16[{ROWS}, 8192]"
    yield "transpose", graph("transpose(a)", a), compiled(lambda x: x.t().contiguous(), (ROWS, 8192))
    yield "transpose, f32", graph("transpose(a)", f"input a : f32[{ROWS}, 8192]"), compiled(
        lambda x: x.t().contiguous(), (ROWS, 8192), dtype="float32")
    yield "heads in front", graph("transpose(a, perm = [1, 0, 2])", "input a : bf16[2048, 32, 128]"), compiled(
        lambda x: x.transpose(0, 1).contiguous(), (2048, 32, 128))
    yield "slice of columns", graph("slice(a, axis = 1, begin = 1000, end = 7000)", a), compiled(
        lambda x: x[:, 1000:7000].contiguous(), (ROWS, 8192))
    yield "slice, from 1001 on", graph("slice(a, axis = 1, begin = 1001, end = 7001)", a), compiled(
        lambda x: x[:, 1001:7001].contiguous(), (ROWS, 8192))
    yield "every second column", graph("slice(a, axis = 1, step = 2)", a), compiled(lambda x: x[:, ::2].contiguous(), (ROWS, 8192))
    yield "concat of columns", graph("concat(a, b, axis = 1)", a, f"input b : bf16[{ROWS}, 8192]"), compiled(
        lambda x, y: torch.cat((x, y), 1), *[(ROWS, 8192)] * 2)

    def looked_up():
        table, ids = random(128256, 2048), torch.randint(128256, (ROWS,), device="cuda")
        return lambda: table[ids]
    yield "embedding", graph("embedding(t, i)", "param t : bf16[128256, 2048]", f"input i : i32[{ROWS}]"), looked_up


NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def products():
    shapes = [(4096, 4096, 4096, "bf16", True), (4096, 4096, 4096, "bf16", False), (4096, 4096, 4096, "f16", True),
              (1024, 1024, 1024, "f32", True), (4096, 4096, 4096, "f32", True), (1, 4096, 4096, "f32", True), (16, 4096, 4096, "f32", True),
              (1000, 1000, 1000, "bf16", True), (4095, 4095, 4095, "bf16", True), (1023, 4095, 1023, "bf16", False),
              (1, 4095, 4095, "bf16", True), (8192, 8192, 64, "bf16", True), (8192, 8192, 1, "bf16", True),
              (8192, 64, 8192, "bf16", True), (1, 8192, 8192, "bf16", False),
              (8, 8192, 8192, "bf16", False), (64, 8192, 8192, "bf16", False)]
    for m, k, n, dtype, transposed in shapes:
        def multiplied(m=m, k=k, n=n, dtype=dtype, transposed=transposed):
            a, b = random(m, k, dtype=NAMES[dtype]), random(*((n, k) if transposed else (k, n)), dtype=NAMES[dtype])
            return lambda: a @ (b.t() if transposed else b)
        b = f"[{n}, {k}]" if transposed else f"[{k}, {n}]"
        yield (f"{dtype} [{m}, {k}] x {b}", graph(f"matmul(a, b, transpose_b = {str(transposed).lower()})", f"input a : {dtype}[{m}, {k}]",
                                                  f"param b : {dtype}{b}"), multiplied)


def attention():
    import torch.nn.functional as f
    for rows_, heads, keys, dim, causal in ((2048, 32, 8, 128, True), (2048, 32, 8, 96, True), (2048, 32, 8, 80, False),
                                            (2048, 16, 16, 256, True), (200, 12, 12, 64, False)):
        def attended(rows_=rows_, heads=heads, keys=keys, dim=dim, causal=causal):
            q, k, v = (random(1, n, rows_, dim) for n in (heads, keys, keys))
            return lambda: f.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != keys)
        yield (f"attention, {rows_} rows, {heads} heads of {dim}{', causal' if causal else ''}",
               graph(f"attention(q, k, v, head_dim = {dim}, causal = {str(causal).lower()})", f"input q : bf16[{rows_}, {heads * dim}]",
                     f"input k : bf16[{rows_}, {keys * dim}]", f"input v : bf16[{rows_}, {keys * dim}]"), attended)
    for rows_, length, dim in itertools.product((1, 4, 16), (512, 8192, 32768), (64, 128)):
        def stored(rows_=rows_, length=length, dim=dim):
            q, k, v = random(1, 32, rows_, dim), random(1, 8, length, dim), random(1, 8, length, dim)
            return lambda: f.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        yield (f"attention, {rows_} rows, {length} keys, 32 heads of {dim}",
               graph(f"attention(q, k, v, head_dim = {dim})", f"input q : bf16[{rows_}, {32 * dim}]",
                     f"input k : bf16[{length}, {8 * dim}]", f"input v : bf16[{length}, {8 * dim}]"), stored)


FAMILIES = {"elementwise": elementwise, "rows": rows, "movement": movement, "products": products, "attention": attention}


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--only", default=",".join(FAMILIES), help=f"some of {', '.join(FAMILIES)}, with commas")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    for family in args.only.split(","):
        for name, text, peer in FAMILIES[family]():
            ours = bench.maco(name.replace(" ", "_"), text)
            theirs = None if args.no_peers else gpu_bench.peer_us(peer(), args.launches)
            bench.add(op=name, maco_us=ours, peer_us=theirs)
    bench.finish()


if __name__ == "__main__":
    main()
