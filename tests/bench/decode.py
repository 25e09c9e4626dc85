"""Decoding one token, batch 1, on one GPU: models of the shapes of Llama-3.2-1B and Qwen3-8B with random weights, beside a careful PyTorch
user (every piece through torch.compile, the whole step one CUDA graph) in the same run."""
import gpu_bench

# hidden, intermediate, layers, heads, heads of keys and values, head_dim, vocabulary, norms of q and k
MODELS = {"llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256, False),
          "qwen3-8b": (4096, 12288, 36, 32, 8, 128, 151936, True)}


def part(model, world):
    """What a rank of `world` has: heads, columns and the vocabulary are divided among them."""
    hidden, inner, layers, heads, kv_heads, dim, vocabulary, head_norms = MODELS[model]
    return hidden, inner // world, layers, heads // world, kv_heads // world, dim, vocabulary // world, head_norms


def graph(model, capacity, world=1):
    hidden, inner, layers, heads, kv_heads, dim, vocabulary, head_norms = part(model, world)
    q, kv = heads * dim, kv_heads * dim
    # With several ranks, each has a part of the sum.
    summed = lambda name: [f"    {name}s_{{i}} = allreduce({name}_{{i}})"] if world > 1 else []
    of = lambda name: f"{name}s_{{i}}" if world > 1 else f"{name}_{{i}}"
    normed = []
    for name, count in (("q", heads), ("k", kv_heads)):
        normed += [f"    {name}h_{{i}} = reshape({name}0_{{i}}, shape = [{count}, {dim}])",
                   f"    param {name}_norm_{{i}} : bf16[{dim}]",
                   f"    {name}n_{{i}} = rmsnorm({name}h_{{i}}, {name}_norm_{{i}})",
                   f"    {name}r_{{i}} = reshape({name}n_{{i}}, shape = [1, {count * dim}])"]
    of_q, of_k = ("qr", "kr") if head_norms else ("q0", "k0")
    return "\n".join([
        f"graph decode(world = {world}) {{", f"  scalar pos in [0, {capacity})", "  input token : i32[1]",
        f"  param embedded : bf16[{vocabulary * world}, {hidden}]",
        "  x_0 = embedding(embedded, token)", f"  repeat i in 0..{layers} {{",
        f"    param norm1_{{i}} : bf16[{hidden}]", f"    param wqkv_{{i}} : bf16[{q + 2 * kv}, {hidden}]",
        f"    param wo_{{i}} : bf16[{hidden}, {q}]", f"    param norm2_{{i}} : bf16[{hidden}]",
        f"    param wg_{{i}} : bf16[{inner}, {hidden}]", f"    param wu_{{i}} : bf16[{inner}, {hidden}]",
        f"    param wd_{{i}} : bf16[{hidden}, {inner}]",
        f"    state kc_{{i}} : bf16[{capacity}, {kv}]", f"    state vc_{{i}} : bf16[{capacity}, {kv}]",
        "    n1_{i} = rmsnorm(x_{i}, norm1_{i})", "    qkv_{i} = matmul(n1_{i}, wqkv_{i}, transpose_b = true)",
        f"    q0_{{i}} = slice(qkv_{{i}}, axis = 1, begin = 0, end = {q})",
        f"    k0_{{i}} = slice(qkv_{{i}}, axis = 1, begin = {q}, end = {q + kv})",
        f"    v0_{{i}} = slice(qkv_{{i}}, axis = 1, begin = {q + kv}, end = {q + 2 * kv})", *(normed if head_norms else []),
        f"    q_{{i}} = rope({of_q}_{{i}}, head_dim = {dim}, position = pos)",
        f"    k_{{i}} = rope({of_k}_{{i}}, head_dim = {dim}, position = pos)",
        "    kc_{i} = kv_append(kc_{i}, k_{i}, at = pos)", "    vc_{i} = kv_append(vc_{i}, v0_{i}, at = pos)",
        f"    at_{{i}} = attention(q_{{i}}, kc_{{i}}, vc_{{i}}, head_dim = {dim}, causal = true, length = pos + 1)",
        "    o_{i} = matmul(at_{i}, wo_{i}, transpose_b = true)", *summed("o"), f"    r_{{i}} = add(x_{{i}}, {of('o')})",
        "    n2_{i} = rmsnorm(r_{i}, norm2_{i})",
        "    g_{i} = matmul(n2_{i}, wg_{i}, transpose_b = true)", "    u_{i} = matmul(n2_{i}, wu_{i}, transpose_b = true)",
        "    s_{i} = swiglu(g_{i}, u_{i})",
        "    d_{i} = matmul(s_{i}, wd_{i}, transpose_b = true)", *summed("d"), f"    x_{{i + 1}} = add(r_{{i}}, {of('d')})", "  }",
        f"  param norm : bf16[{hidden}]", f"  n = rmsnorm(x_{layers}, norm)",
        *(["  logits = matmul(n, embedded, transpose_b = true)"] if world == 1 else
          [f"  param head : bf16[{vocabulary}, {hidden}]", "  some = matmul(n, head, transpose_b = true)", "  all = allgather(some)",
           f"  logits = reshape(all, shape = [1, {vocabulary * world}])"]),
        "  output y = argmax(logits)", "}", ""])


def weight_bytes(model, world=1):
    hidden, inner, layers, heads, kv_heads, dim, vocabulary, _ = part(model, world)
    return 2 * (layers * hidden * ((heads + 2 * kv_heads) * dim + heads * dim + 3 * inner) + vocabulary * hidden)


def peer_step(model, capacity, position, world=1, summed=lambda x: x, gathered=lambda x: x):
    """A token by PyTorch. `summed` and `gathered`: what becomes of a rank's part of a sum, and of the logits."""
    import torch
    import torch.nn.functional as f
    hidden, inner, layers, heads, kv_heads, dim, vocabulary, head_norms = part(model, world)
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
    ones = lambda n: torch.ones(n, device="cuda", dtype=torch.bfloat16)
    all_weights = [dict(norm1=ones(hidden), norm2=ones(hidden), q_norm=ones(dim), k_norm=ones(dim),
                        qkv=make((heads + 2 * kv_heads) * dim, hidden), o=make(hidden, heads * dim), gate_up=make(2 * inner, hidden),
                        down=make(hidden, inner), k=make(1, kv_heads, capacity, dim), v=make(1, kv_heads, capacity, dim))
                   for _ in range(layers)]
    embedded, last_norm = make(vocabulary * world, hidden), ones(hidden)
    last = embedded if world == 1 else make(vocabulary, hidden)
    token = torch.zeros(1, dtype=torch.long, device="cuda")
    at = torch.tensor([position], device="cuda")
    cosine, sine = make(1, 1, dim), make(1, 1, dim)
    mask = (torch.arange(capacity, device="cuda") <= position).view(1, 1, 1, capacity)
    norm = lambda x, w: f.rms_norm(x, (x.shape[-1],), w, 1e-6)

    def turn(x):
        a, b = x.chunk(2, -1)
        return x * cosine + torch.cat((-b, a), -1) * sine

    def attention(x, w):
        q, k, v = f.linear(norm(x, w["norm1"]), w["qkv"]).split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
        q, k = q.view(1, heads, dim), k.view(1, kv_heads, dim)
        if head_norms:
            q, k = norm(q, w["q_norm"]), norm(k, w["k_norm"])
        q, k = turn(q), turn(k)
        w["k"].index_copy_(2, at, k.view(1, kv_heads, 1, dim))
        w["v"].index_copy_(2, at, v.view(1, kv_heads, 1, dim))
        out = f.scaled_dot_product_attention(q.view(1, heads, 1, dim), w["k"], w["v"], attn_mask=mask, enable_gqa=True)
        return f.linear(out.reshape(1, heads * dim), w["o"])

    def mlp(x, w):
        gate, up = f.linear(norm(x, w["norm2"]), w["gate_up"]).chunk(2, -1)
        return f.linear(f.silu(gate) * up, w["down"])

    def head(x):
        return f.linear(norm(x, last_norm), last)

    # On one GPU what is added is part of the piece before it; a sum over ranks comes between.
    if world == 1:
        layer_a, layer_b = torch.compile(lambda x, w: x + attention(x, w)), torch.compile(lambda x, w: x + mlp(x, w))
        last_piece = torch.compile(lambda x: head(x).argmax(-1))

        def step():
            x = embedded[token]
            for w in all_weights:
                x = layer_b(layer_a(x, w), w)
            return last_piece(x)
    else:
        attention, mlp, head = torch.compile(attention), torch.compile(mlp), torch.compile(head)
        add, best = torch.compile(lambda a, b: a + b), torch.compile(lambda x: x.argmax(-1))

        def step():
            x = embedded[token]
            for w in all_weights:
                x = add(x, summed(attention(x, w)))
                x = add(x, summed(mlp(x, w)))
            return best(gathered(head(x)))

    return step


def peer(model, capacity, position, launches):
    import torch
    with torch.no_grad():
        return gpu_bench.peer_us(peer_step(model, capacity, position), launches)


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--model", action="append", choices=list(MODELS), help="default: all")
    parser.add_argument("--capacity", type=int, default=1024, help="rows of the caches")
    parser.add_argument("--position", type=int, action="append", help="rows that are there before the token (512); may be repeated")
    parser.add_argument("--print", action="store_true", help="only the graph")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    series = {}
    for model in args.model or list(MODELS):
        text = graph(model, args.capacity)
        if args.print:
            print(text)
            continue
        for position in args.position or [512]:
            ours = bench.maco(f"{model}-{position}", text, "--scalar", f"pos={position}")
            theirs = None if args.no_peers else peer(model, args.capacity, position, args.launches)
            bench.add(model=model, position=position, maco_us=ours, peer_us=theirs, floor_us=round(weight_bytes(model) / 4.54e6, 1),
                      gb_s=None if not ours else round(weight_bytes(model) / ours / 1e3))
            for name, us in ((model, ours), (f"{model}, PyTorch", theirs)):
                if us:
                    series.setdefault(name, []).append((position, us / 1000))
    gpu_bench.plot(args.svg, "Milliseconds a token", "tokens of context", series)
    bench.finish()


if __name__ == "__main__":
    main()
