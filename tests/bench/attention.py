"""Attention on one GPU, bf16, batch 1: many queries (a prompt, causal or not) or one (a cache), beside the quickest of PyTorch's
scaled_dot_product_attention (FlashAttention, cuDNN) as a CUDA graph in the same run."""
import gpu_bench

# queries, keys, heads, heads of keys and values, head_dim, causal
SHAPES = [(2048, 2048, 32, 8, 64, True), (4096, 4096, 32, 8, 64, True), (4096, 4096, 32, 8, 64, False), (2048, 2048, 32, 8, 128, True),
          (4096, 4096, 32, 8, 128, True), (4096, 4096, 32, 8, 128, False), (4096, 4096, 32, 32, 128, True)]


def graph(queries, keys, heads, kv_heads, dim, causal):
    return "\n".join([
        "graph attention_bench {", f"  input q : bf16[{queries}, {heads * dim}]", f"  input k : bf16[{keys}, {kv_heads * dim}]",
        f"  input v : bf16[{keys}, {kv_heads * dim}]",
        f"  output y = attention(q, k, v, head_dim = {dim}, causal = {'true' if causal else 'false'})", "}", ""])


def peer(queries, keys, heads, kv_heads, dim, causal, launches):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    make = lambda rows, count: torch.randn(1, count, rows, dim, device="cuda", dtype=torch.bfloat16)
    q, k, v = make(queries, heads), make(keys, kv_heads), make(keys, kv_heads)
    times = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend), torch.no_grad():
                run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
                times[backend.name] = gpu_bench.peer_us(run, launches)
        except RuntimeError as error:
            print(f"{backend.name}: {str(error).splitlines()[0]}", flush=True)
    return min(times.items(), key=lambda item: item[1]) if times else (None, None)


def main():
    parser = gpu_bench.arguments(__doc__)
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    for shape in SHAPES:
        queries, keys, heads, kv_heads, dim, causal = shape
        ours = bench.maco("attention-" + "-".join(map(str, shape)), graph(*shape))
        name, theirs = (None, None) if args.no_peers else peer(*shape, args.launches)
        pairs = queries * keys - (queries * (queries - 1) // 2 if causal else 0)
        bench.add(queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, head_dim=dim, causal=causal, maco_us=ours, peer_us=theirs,
                  peer=name, tflops=None if not ours else round(4 * pairs * heads * dim / ours / 1e6, 1))
    bench.finish()


if __name__ == "__main__":
    main()
