"""A prompt of Llama-3.2-1B's shapes (examples/graphs/llama32_1b_prefill.maco) on one GPU with random weights, beside a careful PyTorch user
(every piece through torch.compile, all of them one CUDA graph) in the same run."""
import gpu_bench
from decode import MODELS

GRAPH = "examples/graphs/llama32_1b_prefill.maco"
TOKENS = 2048  # the graph's


def peer(launches):
    import torch
    import torch.nn.functional as f
    hidden, inner, layers, heads, kv_heads, dim, vocabulary, _ = MODELS["llama-3.2-1b"]
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
    ones = lambda n: torch.ones(n, device="cuda", dtype=torch.bfloat16)
    all_weights = [dict(norm1=ones(hidden), norm2=ones(hidden), qkv=make((heads + 2 * kv_heads) * dim, hidden),
                        o=make(hidden, heads * dim), gate_up=make(2 * inner, hidden), down=make(hidden, inner),
                        k=make(1, kv_heads, 4 * TOKENS, dim), v=make(1, kv_heads, 4 * TOKENS, dim)) for _ in range(layers)]
    embedded, last_norm = make(vocabulary, hidden), ones(hidden)
    # Tokens that differ: products of equal rows take less power, and the clock is higher for it.
    tokens = torch.randint(vocabulary, (TOKENS,), device="cuda")
    angles = torch.arange(TOKENS, device="cuda")[:, None, None] * 500000 ** (-torch.arange(dim // 2, device="cuda").repeat(2) / (dim // 2))
    cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()
    norm = lambda x, w: f.rms_norm(x, (x.shape[-1],), w, 1e-5)

    def turn(x):
        a, b = x.chunk(2, -1)
        return x * cosine + torch.cat((-b, a), -1) * sine

    def attention(x, w):
        q, k, v = f.linear(norm(x, w["norm1"]), w["qkv"]).split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
        q, k = turn(q.view(TOKENS, heads, dim)), turn(k.view(TOKENS, kv_heads, dim))
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v.view(TOKENS, kv_heads, dim)))
        w["k"][:, :, :TOKENS] = k
        w["v"][:, :, :TOKENS] = v
        out = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + f.linear(out.transpose(1, 2).reshape(TOKENS, heads * dim), w["o"])

    def mlp(x, w):
        gate, up = f.linear(norm(x, w["norm2"]), w["gate_up"]).chunk(2, -1)
        return x + f.linear(f.silu(gate) * up, w["down"])

    def head(x):
        return f.linear(norm(x[-1:], last_norm), embedded).argmax(-1)

    attention, mlp, head = torch.compile(attention), torch.compile(mlp), torch.compile(head)

    def step():
        x = embedded[tokens]
        for w in all_weights:
            x = mlp(attention(x, w), w)
        return head(x)

    with torch.no_grad():
        return gpu_bench.peer_us(step, launches)


def main():
    parser = gpu_bench.arguments(__doc__)
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    with open(GRAPH) as file:
        ours = bench.maco("prefill", file.read())
    theirs = None if args.no_peers else peer(args.launches)
    bench.add(model="llama-3.2-1b", tokens=TOKENS, maco_us=ours, peer_us=theirs)
    bench.finish()


if __name__ == "__main__":
    main()
