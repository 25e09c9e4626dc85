#!/usr/bin/env python3
"""What MACO costs and gains as it is called from Python: calls, decoder layers, tensor-parallel blocks, torch.distributed's collectives.

    python_calls.py [--part calls,layer]                     one GPU
    torchrun --nproc_per_node=2 python_calls.py [--part ...] several: mlp, attention, c10d

Peers run in the same process: PyTorch eager, torch.compile (Inductor) with NCCL or symmetric memory, in CUDA graphs where it says so.
Medians.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import maco

BF16 = torch.bfloat16


def host_us(call, calls=200, rounds=7):
    """Microseconds that a call takes the host, with the GPU never full."""
    times = []
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


def gpu_us(call, calls=50, rounds=9):
    """Microseconds of a call on the GPU, one behind the other, in the slowest rank."""
    for _ in range(10):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        if dist.is_initialized():
            dist.barrier()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / calls * 1e3)
    return slowest(statistics.median(times))


def slowest(value):
    if not dist.is_initialized():
        return value
    made = torch.tensor([value], device="cuda")
    dist.all_reduce(made, dist.ReduceOp.MAX, group=NCCL)
    return made.item()


NCCL = None


def captured(call):
    """The call as a CUDA graph's launch; None: it can't be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except Exception as error:
        say(f"  not captured: {str(error).splitlines()[0]}")
        return None
    return graph.replay


def both(call, graph):
    return f"{gpu_us(call):7.1f}, in a CUDA graph " + (f"{gpu_us(graph):7.1f}" if graph else "not captured")


def say(text):
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(text, flush=True)


# ---- calls


def part_calls():
    say("calls: us that the host spends; a function of 4 inputs [16, 256] bf16 (a product with a bias, relu, an addition)")

    def function(x, w, b, r):
        return torch.relu(F.linear(x, w, b)) + r

    x, r = torch.randn(16, 256, device="cuda", dtype=BF16), torch.randn(16, 256, device="cuda", dtype=BF16)
    w, b = torch.randn(256, 256, device="cuda", dtype=BF16) / 16, torch.randn(256, device="cuda", dtype=BF16)
    g = maco.Graph("calls")
    a = g.input("x", "bf16", [16, 256])
    y = g.matmul(a, g.input("w", "bf16", [256, 256]), g.input("b", "bf16", [256]), transpose_b=True)
    g.output("y", g.add(g.relu(y), g.input("r", "bf16", [16, 256])))
    s = maco.Session(g.compile())
    for name, tensor in (("x", x), ("w", w), ("b", b), ("r", r), ("y", torch.empty_like(x))):
        s.bind(name, tensor)
    s.run()
    with torch.no_grad():
        ours, theirs = maco.compile(function), torch.compile(function)
        assert torch.allclose(ours(x, w, b, r), function(x, w, b, r), rtol=2e-2, atol=2e-2)
        rows = [
            ("Session.launch", lambda: s.launch()),
            ("maco.compile", lambda: ours(x, w, b, r)),
            ("torch.compile (Inductor)", lambda: theirs(x, w, b, r)),
            ("eager", lambda: function(x, w, b, r)),
        ]
        for name, call in rows:
            say(f"  {name:26s} {host_us(call):7.1f}")
    say(f"  the kernel's own time      {s.bench(100):7.1f}")


# ---- a decoder layer


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * y.to(x.dtype)


def turned(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Layer(nn.Module):
    """A layer of Llama for new tokens x [T, hidden] at `at` [T]; keys and values are kept in [S, heads, head size]."""

    def __init__(self, hidden, heads, kv_heads, size, inner, rows):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.q, self.k, self.v = (nn.Linear(hidden, n * size, bias=False) for n in (heads, kv_heads, kv_heads))
        self.o = nn.Linear(heads * size, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)
        self.register_buffer("keys", torch.zeros(rows, kv_heads, size))
        self.register_buffer("values", torch.zeros(rows, kv_heads, size))
        angles = torch.outer(torch.arange(rows).float(), 1 / (500000 ** (torch.arange(0, size, 2).float() / size)))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, at):
        count = x.shape[0]
        h = self.norm1(x)
        q = self.q(h).view(count, self.heads, self.size)
        k = self.k(h).view(count, self.kv_heads, self.size)
        v = self.v(h).view(count, self.kv_heads, self.size)
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        self.keys.index_copy_(0, at, k)
        self.values.index_copy_(0, at, v)
        seen = torch.arange(self.keys.shape[0], device=x.device)[None, :] <= at[:, None]
        heads = [one.transpose(0, 1)[None] for one in (q, self.keys, self.values)]
        a = F.scaled_dot_product_attention(*heads, attn_mask=seen, enable_gqa=True)[0]
        x = x + self.o(a.transpose(0, 1).reshape(count, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


LAYERS = {"Llama-3.2-1B": (2048, 32, 8, 64, 8192), "Llama-3.1-8B": (4096, 32, 8, 128, 14336)}


def by_hand(hidden, heads, kv_heads, size, inner, rows):
    """The same as a graph of MACO's."""
    g = maco.Graph("layer")
    at = g.scalar("at", 0, rows)
    x = g.input("x", "bf16", [1, hidden])

    def weight(name, n, k):
        return g.param(name, "bf16", [n, k])

    h = g.rmsnorm(x, g.param("norm1", "bf16", [hidden]), eps=1e-5)
    qkv = g.matmul(h, weight("qkv", (heads + 2 * kv_heads) * size, hidden), transpose_b=True)
    q = g.slice(qkv, axis=1, begin=0, end=heads * size)
    k = g.slice(qkv, axis=1, begin=heads * size, end=(heads + kv_heads) * size)
    v = g.slice(qkv, axis=1, begin=(heads + kv_heads) * size, end=(heads + 2 * kv_heads) * size)
    keys, values = g.state("keys", "bf16", [rows, kv_heads * size]), g.state("values", "bf16", [rows, kv_heads * size])
    q, k = (g.rope(one, head_dim=size, theta=500000, position=at) for one in (q, k))
    keys, values = g.kv_append(keys, k, at=at), g.kv_append(values, v, at=at)
    a = g.attention(q, keys, values, head_dim=size, length=at + 1)
    x = g.add(x, g.matmul(a, weight("o", hidden, heads * size), transpose_b=True))
    h = g.rmsnorm(x, g.param("norm2", "bf16", [hidden]), eps=1e-5)
    h = g.swiglu(*(g.matmul(h, weight(name, inner, hidden), transpose_b=True) for name in ("gate", "up")))
    g.output("y", g.add(x, g.matmul(h, weight("down", hidden, inner), transpose_b=True)))
    return g


def part_layer():
    for name, shape in LAYERS.items():
        rows, place = 4096, 1000
        say(f"layer: one of {name}, one token at {place} of {rows}, bf16; us on the GPU")
        layer = Layer(*shape, rows).cuda().to(BF16).eval()
        layer.cos, layer.sin = layer.cos.float().to(BF16), layer.sin.float().to(BF16)
        x, at = torch.randn(1, shape[0], device="cuda", dtype=BF16), torch.tensor([place], device="cuda")
        with torch.no_grad():
            for cache in (layer.keys, layer.values):
                cache.normal_()
            want = layer(x, at)
            begin = time.perf_counter()
            ours = maco.compile(layer)
            got = ours(x, at)
            torch.cuda.synchronize()
            say(f"  first call                 {time.perf_counter() - begin:7.2f} s")
            error = ((got - want).float().norm() / want.float().norm()).item()
            report = maco.explain(layer, x, at)
            say(f"  error {error:.1e}, {str(report).splitlines()[0]}")
            ours_graph = captured(lambda: ours(x, at))
            say(f"  maco.compile               {both(lambda: ours(x, at), ours_graph)}")
            theirs = torch.compile(layer)
            theirs(x, at)
            theirs_graph = captured(lambda: theirs(x, at))
            say(f"  torch.compile              {both(lambda: theirs(x, at), theirs_graph)}")
        s = maco.Session(by_hand(*shape, rows).compile())
        s.allocate()
        say(f"  the graph written by hand  {s.bench(100, at=place):7.1f}")
        s.close()
        del layer, ours, theirs


# ---- tensor parallelism


def shared_memory(elements):
    """Symmetric memory of PyTorch's, and a function that all-reduces it: the result, in memory of its own or there."""
    import torch.distributed._symmetric_memory as symm_mem

    group = NCCL.group_name
    memory = symm_mem.empty(elements, dtype=BF16, device="cuda")
    symm_mem.rendezvous(memory, group)
    if elements * 2 <= 512 << 10:
        return memory, lambda: torch.ops.symm_mem.one_shot_all_reduce(memory, "sum", group)
    return memory, lambda: torch.ops.symm_mem.two_shot_all_reduce_(memory, "sum", group)


def compared(label, block, prepare, args, out):
    """A block that ends in a product and an all-reduce of [rows, out], by MACO, and by Inductor with NCCL and with symmetric memory.

    block(*args, reduce): all of it. prepare(*args): what is ahead of the last product, whose weight is the last of `args`.
    """
    torch._dynamo.reset()
    rows = args[0].shape[0]
    ours = maco.compile(lambda *given: block(*given, maco.allreduce), dynamic=False)
    inside = torch.compile(prepare, dynamic=False)
    memory, reduced = shared_memory(rows * out)
    memory = memory.view(rows, out)

    def by_nccl():
        y = F.linear(inside(*args), args[-1])
        dist.all_reduce(y, group=NCCL)
        return y

    def by_memory():
        torch.mm(inside(*args), args[-1].t(), out=memory)
        return reduced()

    with torch.no_grad():
        want = by_nccl().float()
        found, errors = [], []
        for call in (lambda: ours(*args), by_nccl, by_memory):
            errors.append(((call().float().view(rows, out) - want).norm() / want.norm()).item())
            graph = captured(call)
            found.append((gpu_us(call), gpu_us(graph) if graph else float("nan")))
    assert max(errors) < 2e-2, errors
    report = str(maco.explain(lambda *given: block(*given, maco.allreduce), *args)).splitlines()[0]
    (a, b), (c, d), (e, f) = found
    say(
        f"  {label}  maco {a:7.1f}, in a graph {b:7.1f}  NCCL {c:7.1f}, in a graph {d:7.1f}  symmetric memory {e:7.1f}, in a graph {f:7.1f}"
        f"  ratios {d / b:.2f} {f / b:.2f}; {report}"
    )


def part_mlp():
    n = dist.get_world_size()
    hidden, inner = 4096, 14336
    say(f"mlp: {hidden} x {inner} over {n} GPUs (silu x up, all-reduce), bf16; us on the GPUs")
    for rows in (1, 16, 64, 256, 1024):
        gate, up = (torch.randn(inner // n, hidden, device="cuda", dtype=BF16) / hidden**0.5 for _ in range(2))
        down = torch.randn(hidden, inner // n, device="cuda", dtype=BF16) / inner**0.5
        x = torch.randn(rows, hidden, device="cuda", dtype=BF16)
        dist.broadcast(x, 0, group=NCCL)

        def prepare(x, gate, up, down):
            return F.silu(F.linear(x, gate)) * F.linear(x, up)

        def block(x, gate, up, down, reduce, prepare=prepare):
            return reduce(F.linear(prepare(x, gate, up, down), down))

        compared(f"{rows:5d} rows", block, prepare, (x, gate, up, down), hidden)


def part_attention():
    """An attention block of Llama-3.1-8B: of one row over a cache of 1,000 others, of several over themselves."""
    n = dist.get_world_size()
    hidden, heads, kv_heads, size, place = 4096, 32 // n, 8 // n, 128, 1000
    say(f"attention: {hidden}, heads of {size}, over {n} GPUs (q, k, v, rope, attention, o, all-reduce), bf16; us on the GPUs")
    for rows in (1, 16, 64, 256, 1024):
        q, k, v = (torch.randn(c * size, hidden, device="cuda", dtype=BF16) / hidden**0.5 for c in (heads, kv_heads, kv_heads))
        o = torch.randn(hidden, heads * size, device="cuda", dtype=BF16) / hidden**0.5
        x = torch.randn(rows, hidden, device="cuda", dtype=BF16)
        dist.broadcast(x, 0, group=NCCL)
        keys, values = (torch.randn(4096, kv_heads, size, device="cuda", dtype=BF16) for _ in range(2))
        at = torch.tensor([place], device="cuda")
        angles = torch.outer(torch.arange(4096).float(), 1 / (500000 ** (torch.arange(0, size, 2).float() / size)))
        cos, sin = (torch.cat((one, one), -1).cuda().to(BF16) for one in (angles.cos(), angles.sin()))

        def prepare(x, q, k, v, keys, values, at, cos, sin, o):
            count = x.shape[0]
            q, k, v = (F.linear(x, w).view(count, -1, size) for w in (q, k, v))
            c, s = (cos[at], sin[at]) if count == 1 else (cos[:count], sin[:count])
            q, k = (one * c[:, None] + turned(one) * s[:, None] for one in (q, k))
            mask = None
            if count == 1:
                keys.index_copy_(0, at, k)
                values.index_copy_(0, at, v)
                k, v = keys, values
                mask = torch.arange(keys.shape[0], device=x.device)[None, :] <= at[:, None]
            turned_heads = [one.transpose(0, 1)[None] for one in (q, k, v)]
            a = F.scaled_dot_product_attention(*turned_heads, attn_mask=mask, is_causal=count > 1, enable_gqa=True)[0]
            return a.transpose(0, 1).reshape(count, -1)

        def block(*given, prepare=prepare):
            *args, o, reduce = given
            return reduce(F.linear(prepare(*args, o), o))

        compared(f"{rows:5d} rows", block, prepare, (x, q, k, v, keys, values, at, cos, sin, o), hidden)


def part_c10d():
    say("c10d: dist.all_reduce of bf16 as PyTorch's users call it; us: host, GPUs")
    for size in (4096, 65536, 1 << 20, 16 << 20, 256 << 20):
        x = torch.ones(size // 2, device="cuda", dtype=BF16)
        row = f"  {size:10d} bytes"
        for name, group in (("maco", None), ("NCCL", NCCL)):
            x.zero_()
            call = lambda group=group, x=x: dist.all_reduce(x, group=group)  # noqa: E731
            row += f"  {name} {host_us(call, 50, 5):7.1f} {gpu_us(call):7.1f}"
        say(row)


def main():
    global NCCL
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="calls,layer,mlp,attention,c10d")
    parts = parser.parse_args().part.split(",")
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    if several:
        dist.init_process_group("cpu:maco,cuda:maco")
        NCCL = dist.new_group(backend="nccl")
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for part in parts:
        if (part in ("mlp", "attention", "c10d")) == several:
            globals()[f"part_{part}"]()
    if several:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
