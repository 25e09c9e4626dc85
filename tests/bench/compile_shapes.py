"""Graphs that grow: what compile_curves.py compiles. A shape is a name, a description, and a list of (label, text of the graph)."""

from dataclasses import dataclass, field

LAYER = """\
    param n1_{i} : bf16[8192]
    param wqkv_{i} : bf16[1280, 8192]
    param wo_{i} : bf16[8192, 1024]
    param n2_{i} : bf16[8192]
    param wgu_{i} : bf16[7168, 8192]
    param wd_{i} : bf16[8192, 3584]
    h1_{i} = rmsnorm(x_{i}, n1_{i})
    qkv_{i} = matmul(h1_{i}, wqkv_{i}, transpose_b = true)
    q_{i} = slice(qkv_{i}, axis = 1, begin = 0, end = 1024)
    o_{i} = matmul(q_{i}, wo_{i}, transpose_b = true)
    os_{i} = allreduce(o_{i})
    r_{i} = add(x_{i}, os_{i})
    h2_{i} = rmsnorm(r_{i}, n2_{i})
    gu_{i} = matmul(h2_{i}, wgu_{i}, transpose_b = true)
    g_{i}, u_{i} = split(gu_{i}, axis = 1)
    a_{i} = swiglu(g_{i}, u_{i})
    d_{i} = matmul(a_{i}, wd_{i}, transpose_b = true)
    ds_{i} = allreduce(d_{i})
    x_{i + 1} = add(r_{i}, ds_{i})
"""


@dataclass
class Shape:
    name: str
    what: str
    graphs: list
    # Tensors in a file of inputs, by label: then maco-run's time is measured, not macoc's.
    file_tensors: dict = field(default_factory=dict)


def graph(lines, world=1):
    return "\n".join([f"graph g(world = {world}) {{", *lines, "}", ""])


def stack(rows, layers):
    return graph([f"  input x_0 : bf16[{rows}, 8192]", f"  repeat i in 0..{layers} {{", LAYER + "  }", f"  output y = copy(x_{layers})"], 8)


def attention(rows):
    return graph([f"  input q : bf16[{rows}, 8192]", f"  input k : bf16[{rows}, 1024]", f"  input v : bf16[{rows}, 1024]",
                  "  output y = attention(q, k, v, head_dim = 128)"])


def allreduce(columns, softmax):
    if not softmax:
        return graph([f"  input x : f32[1, {columns}]", "  output y = allreduce(x)"], 2)
    return graph([f"  input x : f32[1, {columns}]", "  s = allreduce(x)", "  output y = softmax(s)"], 2)


def gather(rows):
    return graph([f"  dim t <= {rows}", "  input x : bf16[t, 8192]", "  param w : bf16[8192]", "  a = allgather(x)",
                  "  output y = rmsnorm(a, w)"], 8)


def collectives(columns):
    ops = ("allreduce", "alltoall", "allgather", "reduce_scatter")
    return graph([f"  input x : f32[64, {columns}]", *(f"  output {op}_y = {op}(x)" for op in ops)], 64)


def state_sums(count):
    return graph(["  input x : f32[8, 16]", "  state s : f32[8, 16]"] + ["  s = add(s, x)"] * count)


def barriers(count):
    return graph(["  input x : f32[8, 16]"] + ["  barrier()"] * count + ["  output y = relu(x)"])


def unrelated(count):
    return graph([f"  input x{i} : f32[8, 16]" for i in range(count)] + [f"  output y{i} = relu(x{i})" for i in range(count)])


def phases(count, depends_on):
    names = [f"p{i}" for i in range(count)]
    lines = [f"  phase {name}" + (f" depends_on {', '.join(depends_on(names, i))}" if i else "") for i, name in enumerate(names)]
    return graph(["  input x : f32[8, 16]"] + lines + [f'  output y{i} = relu(x, phase = "p{i}")' for i in range(count)])


def products(count, microbatches=0):
    """Each reads the one before, row by row; with microbatches each is a stage."""
    lines = ["  input x0 : bf16[1024, 256]", *(f"  param w{i} : bf16[256, 256]" for i in range(count))]
    lines += [f"  {'output ' * (i == count - 1)}x{i + 1} = matmul(x{i}, w{i}, transpose_b = true)" for i in range(count)]
    if microbatches:
        lines.append(f"  pipeline [{', '.join(f'[x{i + 1}]' for i in range(count))}] microbatches {microbatches}")
    return graph(lines)


def grown(name, what, sizes, make, unit=""):
    return Shape(name, what, [(f"{size:,}{unit}", make(size)) for size in sizes])


def shapes(decode):
    """`decode`: the text of examples/graphs/llama70b_decode_tp8.maco."""

    def decode_layers(layers):
        return decode.replace("0..80", f"0..{layers}").replace("x_80", f"x_{layers}")

    layers = [2, 5, 10, 20, 40, 80]
    files = {f"{n:,}": n for n in (2500, 5000, 10000, 20000)}
    return [
        grown("decode", "llama70b_decode_tp8: layers of attention with a cache and an MLP, 8 ranks, one row", [1, 2, 4, 8, 16, 32, 80],
              decode_layers, " layers"),
        *(grown(f"stack-{rows}", f"tensor-parallel layers, 8 ranks, hidden 8192, {rows} row{'s' * (rows > 1)}", layers,
                lambda n, rows=rows: stack(rows, n), " layers") for rows in (1, 16, 64, 1024)),
        grown("attention", "one attention: q bf16[rows, 8192], k and v bf16[rows, 1024], head_dim 128", [1024, 2048, 4096, 8192, 16384],
              attention, " rows"),
        grown("allreduce", "allreduce(x), f32[1, N], 2 ranks", [1000000, 2000000, 4000000, 8000000], lambda n: allreduce(n, False)),
        grown("allreduce-softmax", "allreduce and a softmax behind it, f32[1, N], 2 ranks", [1000000, 2000000, 4000000, 8000000],
              lambda n: allreduce(n, True)),
        grown("dim-gather", "8 ranks, dim t <= N: allgather of bf16[t, 8192], rmsnorm", [512, 1024, 2048, 4096], gather),
        grown("ranks-64", "64 ranks, f32[64, N]: allreduce, alltoall, allgather, reduce_scatter", [64, 256, 1024, 4096], collectives),
        grown("state-sums", "N times s = add(s, x) on a state", [500, 1000, 2000, 4000], state_sums),
        grown("barriers", "N barriers", [250, 500, 1000, 2000], barriers),
        grown("unrelated", "N unrelated inputs and relus", [10000, 20000, 40000, 100000], unrelated),
        grown("phases-all", "N phases, each on all before", [100, 200, 400], lambda n: phases(n, lambda names, i: names[:i])),
        grown("phases-chain", "N phases in a chain", [500, 1000, 2000], lambda n: phases(n, lambda names, i: names[i - 1 : i])),
        grown("products", "N products in a chain, 1,024 rows", [100, 200, 400, 1000], products),
        grown("pipeline", "the same as stages of a pipeline of 4 microbatches", [100, 200, 400, 1000, 2000], lambda n: products(n, 4)),
        Shape("safetensors", "maco-run with a file of inputs that has N tensors",
              [(label, graph(["  input x0 : f32[4]", "  output y = relu(x0)"])) for label in files], files),
    ]
