"""Tiny checkpoints, with graphs and weights.json written by hand: for tests of what reads them.

  tiny_checkpoint.py OUT [--world N] [--dtype bf16]    a model of two layers: OUT/checkpoint, and OUT/graphs for maco-run

Files are written here, byte by byte; tensors are NumPy's float32 with the values that their dtype on disk has.
"""

import argparse
import json
import os
import struct

import numpy as np

TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def to_bf16(values):
    """Bits of bf16, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_bytes(values, dtype):
    if dtype == "bf16":
        return to_bf16(values).tobytes()
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float16 if dtype == "f16" else np.float32).tobytes()


def from_bytes(data, dtype, shape):
    if dtype == "bf16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return (
        np.frombuffer(data, {"f16": np.float16, "f32": np.float32, "i32": np.int32}[dtype])
        .astype(np.int32 if dtype == "i32" else np.float32)
        .reshape(shape)
    )


def rounded(values, dtype):
    values = np.asarray(values, np.float32)
    return from_bytes(to_bytes(values, dtype), dtype, values.shape)


def write_file(path, tensors, blanks=0):
    """`tensors`: name -> (dtype, shape, bytes), in their order. Returns where the bytes of each begin."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * blanks
    begins, begin = {}, 8 + len(text)
    for name, (_, _, data) in tensors.items():
        begins[name] = begin
        begin += len(data)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return begins


def read_file(path):
    """Name -> array, of a file that maco-run wrote."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    names = {name: dtype for dtype, name in TYPES.items()} | {"I32": "i32"}
    found = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            found[name] = from_bytes(data[begin:end], names[entry["dtype"]], entry["shape"])
    return found


class Checkpoint:
    """Tensors in shards with an index, and weights.json for params that are added one by one."""

    def __init__(self, folder, world=1, **more):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.world, self.tensors = folder, world, {}
        self.weights = {
            "maco_weights": 1,
            "architecture": "TinyForCausalLM",
            "world": world,
            **more,
            "files": [],
            "sources": {},
            "params": {},
        }

    def add(self, name, values, dtype):
        self.tensors[name] = (dtype, rounded(values, dtype))

    def write(self, shards, blanks=(3, 0)):
        """`shards`: lists of names. Headers of odd lengths leave tensors at odd places."""
        index = {}
        for i, names in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            content = {f"empty.{i}": ("F16", (0, 4), b"")}
            content |= {
                n: (TYPES[self.tensors[n][0]], self.tensors[n][1].shape, to_bytes(self.tensors[n][1], self.tensors[n][0])) for n in names
            }
            path = os.path.join(self.folder, file)
            for name, begin in write_file(path, content, blanks[i % len(blanks)]).items():
                index[name] = file
                dtype, shape, _ = content[name]
                self.weights["sources"][name] = {"file": i, "dtype": dtype, "shape": list(shape), "begin": begin}
            self.weights["files"].append({"name": file, "bytes": os.path.getsize(path)})
        with open(os.path.join(self.folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
            json.dump({"weight_map": index}, out)

    def param(self, name, dtype, shape, **what):
        """`parts`, `ranks` or `values`, as weights.json has them."""
        self.weights["params"][name] = {"dtype": dtype, "shape": list(shape), **what}

    def expected(self, name, rank):
        """The param on a rank, as NumPy makes it of the tensors."""
        param = self.weights["params"][name]
        if "values" in param:
            return rounded(np.array(param["values"], np.float32).reshape(param["shape"]), param["dtype"])
        rows = param["shape"][0]
        made = np.zeros((rows, int(np.prod(param["shape"][1:], dtype=np.int64))), np.float32)
        for part in param["parts"] if "parts" in param else param["ranks"][rank]:
            source = self.tensors[part["from"]][1]
            matrix = source.reshape(source.shape[0], -1)
            box = matrix[slice(*part.get("rows", (0, None))), slice(*part.get("columns", (0, None)))]
            box = box.T if part.get("transpose") else box
            row, column = part.get("to", (0, 0))
            made[row : row + box.shape[0], column : column + box.shape[1]] = box + np.float32(part["plus"]) if "plus" in part else box
        return rounded(made, param["dtype"]).reshape(param["shape"])

    def write_graphs(self, folder, graphs):
        """`graphs`: kind -> text."""
        os.makedirs(folder, exist_ok=True)
        for kind, text in graphs.items():
            with open(os.path.join(folder, f"{kind}.maco"), "w", encoding="utf-8") as out:
                out.write(text)
        with open(os.path.join(folder, "weights.json"), "w", encoding="utf-8") as out:
            json.dump(self.weights, out)


HIDDEN, HEADS, HEAD, INNER, VOCABULARY, LAYERS, EPS = 48, 6, 8, 96, 60, 2, 1e-6


def model_graph(kind, world, dtype, max_seq, chunk):
    wide = HEADS // world * HEAD
    rows = "rows" if kind == "prefill" else "1"
    places = max_seq - chunk + 1 if kind == "prefill" else max_seq
    lines = [f"graph tiny_{kind}(world = {world}) {{"] + ["  dim rows <= %d" % chunk] * (kind == "prefill")
    lines += [
        f"  scalar pos in [0, {places})",
        f"  input tokens : i32[{rows}]",
        f"  param embedded : {dtype}[{VOCABULARY}, {HIDDEN}]",
        f"  param norm : {dtype}[{HIDDEN}]",
        f"  param head : {dtype}[{VOCABULARY // world}, {HIDDEN}]",
        "  x_0 = embedding(embedded, tokens)",
    ]
    for i in range(LAYERS):
        lines += [
            f"  param norm1_{i} : {dtype}[{HIDDEN}]",
            f"  param wqkv_{i} : {dtype}[{3 * wide}, {HIDDEN}]",
            f"  param wo_{i} : {dtype}[{HIDDEN}, {wide}]",
            f"  param norm2_{i} : {dtype}[{HIDDEN}]",
            f"  param wgu_{i} : {dtype}[{2 * INNER // world}, {HIDDEN}]",
            f"  param wd_{i} : {dtype}[{HIDDEN}, {INNER // world}]",
            f"  state kc_{i} : {dtype}[{max_seq}, {wide}]",
            f"  state vc_{i} : {dtype}[{max_seq}, {wide}]",
            f"  n1_{i} = rmsnorm(x_{i}, norm1_{i}, eps = {EPS})",
            f"  qkv_{i} = matmul(n1_{i}, wqkv_{i}, transpose_b = true)",
            f"  q0_{i}, k0_{i}, v0_{i} = split(qkv_{i}, axis = 1)",
            f"  q_{i} = rope(q0_{i}, head_dim = {HEAD}, position = pos)",
            f"  k_{i} = rope(k0_{i}, head_dim = {HEAD}, position = pos)",
            f"  kc_{i} = kv_append(kc_{i}, k_{i}, at = pos)",
            f"  vc_{i} = kv_append(vc_{i}, v0_{i}, at = pos)",
            f"  at_{i} = attention(q_{i}, kc_{i}, vc_{i}, head_dim = {HEAD}, causal = true, length = pos + {rows})",
            f"  o_{i} = matmul(at_{i}, wo_{i}, transpose_b = true)",
            f"  so_{i} = allreduce(o_{i})",
            f"  r_{i} = add(x_{i}, so_{i})",
            f"  n2_{i} = rmsnorm(r_{i}, norm2_{i}, eps = {EPS})",
            f"  gu_{i} = matmul(n2_{i}, wgu_{i}, transpose_b = true)",
            f"  g_{i}, u_{i} = split(gu_{i}, axis = 1)",
            f"  s_{i} = swiglu(g_{i}, u_{i})",
            f"  d_{i} = matmul(s_{i}, wd_{i}, transpose_b = true)",
            f"  sd_{i} = allreduce(d_{i})",
            f"  x_{i + 1} = add(r_{i}, sd_{i})",
        ]
    last = "last" if kind == "prefill" else f"x_{LAYERS}"
    lines += [f"  last = slice(x_{LAYERS}, axis = 0, begin = -1)"] * (kind == "prefill")
    lines += [
        f"  n = rmsnorm({last}, norm, eps = {EPS})",
        "  part = matmul(n, head, transpose_b = true)",
        "  parts = allgather(part)",
        f"  output logits : {dtype}[1, {VOCABULARY}] = reshape(parts, shape = [1, {VOCABULARY}])",
        "  output next : i32[1] = argmax(logits)",
        "}",
    ]
    return "\n".join(lines) + "\n"


def tiny_model(folder, world, dtype="f32", max_seq=24, chunk=4, seed=1, eos=(), on_disk=("f32", "f16", "bf16")):
    """A Llama with random weights in two shards, whose dtypes take turns: checkpoint and graphs in `folder`."""
    random = np.random.default_rng(seed)
    c = Checkpoint(
        os.path.join(folder, "checkpoint"),
        world,
        dtype=dtype,
        max_seq=max_seq,
        chunk=chunk,
        verify_rows=0,
        vocabulary=VOCABULARY,
        eos=list(eos),
    )

    def tensor(name, *shape):
        scale = 1 if len(shape) == 1 else (1.0 if "embed" in name else shape[1] ** -0.5 * 1.5)
        c.add(
            name,
            random.standard_normal(shape) * scale * (0.1 if len(shape) == 1 else 1) + (len(shape) == 1),
            on_disk[len(c.tensors) % len(on_disk)],
        )

    tensor("embed.weight", VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        for name, *shape in (
            ("norm1", HIDDEN),
            ("q", HEADS * HEAD, HIDDEN),
            ("k", HEADS * HEAD, HIDDEN),
            ("v", HEADS * HEAD, HIDDEN),
            ("o", HIDDEN, HEADS * HEAD),
            ("norm2", HIDDEN),
            ("gate", INNER, HIDDEN),
            ("up", INNER, HIDDEN),
            ("down", HIDDEN, INNER),
        ):
            tensor(f"layers.{i}.{name}.weight", *shape)
    tensor("norm.weight", HIDDEN)
    tensor("head.weight", VOCABULARY, HIDDEN)
    names = list(c.tensors)
    c.write([names[: len(names) // 2], names[len(names) // 2 :]])

    def cut(name, kind, whole):
        each = whole // world
        return [[{"from": name, kind: [r * each, (r + 1) * each]}] for r in range(world)]

    def fused(names, whole):
        each = whole // world
        return [[{"from": n, "rows": [r * each, (r + 1) * each], "to": [i * each, 0]} for i, n in enumerate(names)] for r in range(world)]

    c.param("embedded", dtype, (VOCABULARY, HIDDEN), parts=[{"from": "embed.weight"}])
    c.param("norm", dtype, (HIDDEN,), parts=[{"from": "norm.weight"}])
    c.param("head", dtype, (VOCABULARY // world, HIDDEN), ranks=cut("head.weight", "rows", VOCABULARY))
    for i in range(LAYERS):
        of = f"layers.{i}."
        for norm in ("norm1", "norm2"):
            c.param(f"{norm}_{i}", dtype, (HIDDEN,), parts=[{"from": of + norm + ".weight"}])
        c.param(f"wqkv_{i}", dtype, (3 * HEADS * HEAD // world, HIDDEN), ranks=fused([of + n + ".weight" for n in "qkv"], HEADS * HEAD))
        c.param(f"wo_{i}", dtype, (HIDDEN, HEADS * HEAD // world), ranks=cut(of + "o.weight", "columns", HEADS * HEAD))
        c.param(f"wgu_{i}", dtype, (2 * INNER // world, HIDDEN), ranks=fused([of + "gate.weight", of + "up.weight"], INNER))
        c.param(f"wd_{i}", dtype, (HIDDEN, INNER // world), ranks=cut(of + "down.weight", "columns", INNER))
    graphs = {kind: model_graph(kind, world, dtype, max_seq, chunk) for kind in ("decode", "prefill")}
    c.write_graphs(os.path.join(folder, "graphs"), graphs)
    return c


def greedy(c, prompt, most, max_seq, eos=()):
    """The ids that follow, and how far apart the two best logits were at the closest, as NumPy has it in float64."""
    w = {name: values.astype(np.float64) for name, (_, values) in c.tensors.items()}

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight

    def turn(x):
        places, half = np.arange(len(x)), HEAD // 2
        angles = places[:, None] / 10000 ** (np.arange(half) / half)
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        heads = x.reshape(len(x), -1, HEAD)
        a, b = heads[..., :half], heads[..., half:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    def logits(ids):
        x = w["embed.weight"][ids]
        for i in range(LAYERS):
            of = f"layers.{i}."
            n = norm(x, w[of + "norm1.weight"])
            q, k = turn(n @ w[of + "q.weight"].T), turn(n @ w[of + "k.weight"].T)
            v = (n @ w[of + "v.weight"].T).reshape(len(ids), -1, HEAD)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD)
            scores = np.where(np.tril(np.ones((len(ids), len(ids)), bool)), scores, -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(len(ids), -1) @ w[of + "o.weight"].T
            n = norm(x, w[of + "norm2.weight"])
            g = n @ w[of + "gate.weight"].T
            x = x + (g / (1 + np.exp(-g)) * (n @ w[of + "up.weight"].T)) @ w[of + "down.weight"].T
        return norm(x[-1], w["norm.weight"]) @ w["head.weight"].T

    ids, made, closest = list(prompt), [], np.inf
    while len(made) < most and len(ids) <= max_seq:
        all_logits = logits(np.array(ids))
        best = np.sort(all_logits)[-2:]
        closest = min(closest, best[1] - best[0])
        made.append(int(all_logits.argmax()))
        ids.append(made[-1])
        if made[-1] in eos:
            break
    return made, closest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--world", type=int, default=1, choices=(1, 2, 3, 6))
    parser.add_argument("--dtype", default="bf16", choices=tuple(TYPES))
    args = parser.parse_args()
    tiny_model(args.out, args.world, args.dtype)


if __name__ == "__main__":
    main()
