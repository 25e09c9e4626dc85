#!/usr/bin/env python3
"""Writes a random valid graph as JSON, and with --inputs the tensors that it reads.

  random_graph.py --seed 7 -o graph.json --inputs in.{rank}.safetensors

Prints the options of a launch that goes with it ("--dim tokens=3 --scalar pos=5+ --launches 2"). The same seed gives the same files.
The graph keeps its values near 1, so that results can be compared: no overflow, no difference of nearly equal numbers, no integer made
from a rounded float.
"""

import argparse
import json
import random
import sys

import numpy as np

FLOATS = ["f32", "f16", "bf16"]


class Value:
    """A tensor that ops may read. `rows`: the expression of axis 0, or None for constant shapes; `shape`: with actual extents."""

    def __init__(self, name, dtype, entries, magnitude=1.0, exact=False):
        self.name, self.dtype, self.entries, self.magnitude, self.exact = name, dtype, entries, magnitude, exact

    @property
    def axes(self):
        return len(self.entries)

    @property
    def last(self):
        return self.entries[-1]

    def constant(self):
        return all(isinstance(e, int) for e in self.entries)


class Maker:
    def __init__(self, seed, ops, world, without):
        self.r = random.Random(seed)
        self.without = set(without)
        self.world = world or self.r.choice([1, 2, 2, 3, 4, 4, 5, 8])
        self.tensors, self.ops, self.values, self.options = {}, [], [], []
        self.filled = {}  # name -> how its values are made
        self.dims, self.count, self.read = {}, 0, set()
        self.tokens = None
        if self.r.random() < 0.5:
            most = self.r.randint(1, 17)
            self.tokens = self.r.randint(1, most)
            self.dims = {"tokens": {"max": most}}
            if self.r.random() < 0.7:
                self.options.append(f"--dim tokens={self.tokens}")
            else:
                self.tokens = most
        self.launches = self.r.choice([1, 1, 2, 3])
        self.options.append(f"--launches {self.launches}")
        self.pos = None
        for _ in range(self.r.randint(1, 3)):
            self.input()
        while len(self.ops) < ops:
            self.step()
        self.finish()

    # --- declarations ---------------------------------------------------------------------------------------------------------

    def fresh(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def declare(self, prefix, kind, dtype, entries, fill="normal"):
        name = self.fresh(prefix)
        self.tensors[name] = {"kind": kind, "dtype": dtype, "shape": list(entries)}
        self.filled[name] = fill
        return name

    def extent(self):
        return self.r.choice([1, 2, 3, 5, 7, 8, 16, 31, 33, 64, 65, 100, 130])

    def width(self):
        return self.r.choice([4, 6, 8, 12, 16, 32, 40, 64, 72, 96, 128, 160])

    def rows(self):
        return "tokens" if self.dims and self.r.random() < 0.6 else self.extent()

    def dtype(self):
        return self.r.choice(FLOATS)

    def input(self):
        axes = self.r.choice([1, 2, 2, 2, 2, 3])
        entries = [self.width()] if axes == 1 else [self.rows()] + [self.r.randint(1, 4)] * (axes - 2) + [self.width()]
        dtype = self.dtype()
        value = Value(self.declare("x", "input", dtype, entries), dtype, entries, exact=True)
        self.values.append(value)
        return value

    def param(self, dtype, entries, fill="normal"):
        return self.declare("w", "param", dtype, entries, fill)

    def pick(self, accept):
        """A value that `accept` takes, most likely a recent one; a new input if there is none."""
        found = [v for v in self.values if accept(v)]
        if not found:
            for _ in range(50):
                value = self.input()
                if accept(value):
                    return value
            return None
        value = found[-1 - min(int(self.r.expovariate(0.7)), len(found) - 1)]
        return value

    def emit(self, kind, ins, dtype, entries, magnitude=1.0, outs=1, /, **attrs):
        names = [self.fresh("t") for _ in range(outs)]
        op = {"op": kind, "in": ins, "out": names if outs > 1 else names[0], **attrs}
        self.ops.append(op)
        self.read.update(ins)
        made = [Value(n, dtype, list(entries), magnitude) for n in names]
        self.values += made
        return made[0]

    # --- ops ------------------------------------------------------------------------------------------------------------------

    def step(self):
        choices = [
            (self.matmul, 4), (self.unary, 3), (self.binary, 4), (self.swiglu, 1), (self.norm, 3), (self.softmax, 1), (self.rope, 2),
            (self.attention, 2), (self.cached_attention, 2), (self.embedding, 1), (self.argmax, 1), (self.reduction, 1),
            (self.cast, 1), (self.transpose, 1), (self.reshape, 1), (self.slice, 1), (self.concat, 1), (self.split, 1),
            (self.integers, 1), (self.accumulate, 1), (self.allreduce, 3), (self.allgather, 1), (self.reduce_scatter, 1),
            (self.alltoall, 1), (self.broadcast, 1), (self.ring_shift, 1), (self.send_recv, 1), (self.barrier, 0.3),
        ]
        choices = [(f, w) for f, w in choices if f.__name__ not in self.without]
        self.r.choices([f for f, _ in choices], [w for _, w in choices])[0]()

    def is_matrix(self, v):
        return v.axes == 2 and v.dtype in FLOATS and isinstance(v.last, int) and v.last >= 4

    def is_rows(self, v):
        return v.axes >= 2 and v.dtype in FLOATS and isinstance(v.last, int) and v.last >= 4

    def result_dtype(self, v):
        """An op's `dtype`, most often that of its first input."""
        return self.dtype() if self.r.random() < 0.25 else v.dtype

    def typed(self, v):
        dtype = self.result_dtype(v)
        return dtype, ({"dtype": dtype} if dtype != v.dtype else {})

    def matmul(self):
        a = self.pick(self.is_matrix)
        n = self.width()
        transposed = self.r.random() < 0.6
        dtype, attrs = self.typed(a)
        ins = [a.name, self.param(a.dtype if self.r.random() < 0.8 else self.dtype(), [n, a.last] if transposed else [a.last, n])]
        if transposed:
            attrs["transpose_b"] = True
        if self.r.random() < 0.3:
            ins.append(self.param(a.dtype, [n]))
        if self.r.random() < 0.3:
            attrs["activation"] = self.r.choice(["relu", "silu", "gelu"])
        self.emit("matmul", ins, dtype, [a.entries[0], n], a.magnitude, **attrs)

    def unary(self):
        kind = self.r.choice(["relu", "silu", "gelu", "sigmoid", "tanh", "exp"])
        v = self.pick(lambda v: v.dtype in FLOATS and (kind != "exp" or v.magnitude <= 1))
        dtype, attrs = self.typed(v)
        if kind == "gelu" and self.r.random() < 0.5:
            attrs["approximate"] = "tanh"
        self.emit(kind, [v.name], dtype, v.entries, 8 if kind == "exp" else min(v.magnitude, 1) if kind in ("sigmoid", "tanh") else v.magnitude,
                  **attrs)

    def binary(self):
        kind = self.r.choice(["add", "add", "sub", "mul", "maximum", "minimum"])
        a = self.pick(lambda v: v.dtype in FLOATS and v.magnitude <= 8)
        dtype, attrs = self.typed(a)
        magnitude = a.magnitude + 1 if kind != "mul" else a.magnitude * 2
        choice = self.r.random()
        same = [v for v in self.values if v.entries == a.entries and v.dtype == a.dtype and v.name != a.name and v.magnitude <= 8]
        if choice < 0.5 and same and kind != "sub":
            b = self.r.choice(same)
            self.emit(kind, [a.name, b.name], dtype, a.entries, a.magnitude * b.magnitude + 1 if kind == "mul" else a.magnitude + b.magnitude, **attrs)
        elif choice < 0.8 and isinstance(a.last, int):
            shape = [1] if a.axes == 1 or self.r.random() < 0.3 else [a.last]
            self.emit(kind, [a.name, self.param(a.dtype, shape)], dtype, a.entries, magnitude, **attrs)
        else:
            self.emit(kind, [a.name], dtype, a.entries, magnitude, value=self.r.choice([0.5, 2, -1, 1.25]), **attrs)

    def swiglu(self):
        a = self.pick(lambda v: v.dtype in FLOATS and v.magnitude <= 4)
        same = [v for v in self.values if v.entries == a.entries and v.dtype == a.dtype and v.magnitude <= 4]
        self.emit("swiglu", [a.name, self.r.choice(same).name], a.dtype, a.entries, 16)

    def norm(self):
        v = self.pick(self.is_rows)
        dtype, attrs = self.typed(v)
        if self.r.random() < 0.6:
            self.emit("rmsnorm", [v.name, self.param(v.dtype, [v.last])], dtype, v.entries, 1, eps=1e-3, **attrs)
        else:
            self.emit("layernorm", [v.name, self.param(v.dtype, [v.last]), self.param(v.dtype, [v.last])], dtype, v.entries, 2, eps=1e-3, **attrs)

    def softmax(self):
        v = self.pick(lambda v: self.is_rows(v) and v.magnitude <= 4)
        self.emit("softmax", [v.name], v.dtype, v.entries, 1)

    def heads(self, v):
        fitting = [d for d in (4, 8, 16, 32, 64) if v.last % d == 0]
        return self.r.choice(fitting) if fitting else None

    def position(self):
        if self.pos is None:
            self.pos = "pos"
            self.tensors["pos"] = {"kind": "scalar", "range": [0, 24]}
            self.options.append(f"--scalar pos={self.r.randint(0, 20)}{'+' if self.r.random() < 0.7 else ''}")
        return self.pos

    def rope(self):
        v = self.pick(lambda v: self.is_matrix(v) and self.heads(v))
        attrs = {"head_dim": self.heads(v), "interleaved": self.r.random() < 0.5, "theta": self.r.choice([10000, 500000.0])}
        ins = [v.name]
        if self.r.random() < 0.3:
            attrs["scaling"] = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 64}
        if self.r.random() < 0.3:
            ins.append(self.declare("p", "input", "i32", [v.entries[0]], ("integers", 0, 4096)))
        else:
            attrs["position"] = self.r.choice([3, "rank * 2 + 1", self.position(), self.position() + " + 1"])
        self.emit("rope", ins, v.dtype, v.entries, v.magnitude, **attrs)

    def attention(self):
        q = self.pick(lambda v: self.is_matrix(v) and self.heads(v) and v.magnitude <= 4)
        d = self.heads(q)
        group = self.r.choice([g for g in (1, 2, 4) if (q.last // d) % g == 0])
        s = self.r.randint(1, 70)
        causal = isinstance(q.entries[0], int) and q.entries[0] <= s and self.r.random() < 0.5
        k, v = (self.declare("x", "input", q.dtype, [s, q.last // group]) for _ in range(2))
        attrs = {"causal": True} if causal else {}
        if self.r.random() < 0.3:
            attrs["scale"] = 0.2
        self.emit("attention", [q.name, k, v], q.dtype, q.entries, 1, head_dim=d, **attrs)

    def cached_attention(self):
        q = self.pick(lambda v: self.is_matrix(v) and self.heads(v) and v.magnitude <= 4 and v.entries[0] != 130)
        d = self.heads(q)
        group = self.r.choice([g for g in (1, 2) if (q.last // d) % g == 0])
        t = q.entries[0] if isinstance(q.entries[0], int) else self.dims["tokens"]["max"] if q.entries[0] == "tokens" else None
        if t is None:
            return
        width, pos = q.last // group, self.position()
        k = self.emit("matmul", [q.name, self.param(q.dtype, [width, q.last])], q.dtype, [q.entries[0], width], q.magnitude, transpose_b=True)
        cache = self.declare("cache", "state", q.dtype, [t + 24 + self.r.randint(0, 9), width], "zero")
        self.ops.append({"op": "kv_append", "in": [cache, k.name], "out": cache, "at": pos})
        self.read.add(k.name)
        self.emit("attention", [q.name, cache, cache], q.dtype, q.entries, q.magnitude, head_dim=d, causal=True, length=f"{pos} + {q.entries[0]}")

    def embedding(self):
        dtype, vocabulary = self.dtype(), self.r.choice([7, 100, 1000])
        ids = self.declare("ids", "input", "i32", [self.rows()], ("integers", 0, vocabulary))
        n = self.width()
        self.emit("embedding", [self.param(dtype, [vocabulary, n], "unit"), ids], dtype, self.tensors[ids]["shape"] + [n])

    def argmax(self):
        v = self.pick(lambda v: v.dtype in FLOATS and v.axes >= 2 and isinstance(v.last, int))
        name = self.fresh("y")
        self.tensors[name] = {"kind": "output", "dtype": "i32", "shape": v.entries[:-1]}
        self.ops.append({"op": "argmax", "in": [v.name], "out": name})
        self.read.add(v.name)

    def reduction(self):
        kind = self.r.choice(["sum", "mean", "max"])
        v = self.pick(lambda v: self.is_rows(v) and v.last <= 72)
        # Of squares, so that sums don't cancel.
        square = self.emit("mul", [v.name, v.name], "f32", v.entries, 1, dtype="f32")
        self.emit(kind, [square.name], "f32", v.entries[:-1], v.magnitude**2 * (v.last if kind == "sum" else 3))

    def cast(self):
        v = self.pick(lambda v: v.dtype in FLOATS)
        dtype = self.dtype()
        self.emit("cast", [v.name], dtype, v.entries, v.magnitude, dtype=dtype)

    def transpose(self):
        v = self.pick(lambda v: v.constant() and v.axes >= 2)
        perm = list(range(v.axes))
        self.r.shuffle(perm)
        attrs = {"perm": perm}
        if self.r.random() < 0.3:
            perm, attrs = perm.sort(reverse=True) or perm, {}
        self.emit("transpose", [v.name], v.dtype, [v.entries[p] for p in perm], v.magnitude, **attrs)

    def reshape(self):
        v = self.pick(lambda v: v.constant())
        n = int(np.prod(v.entries))
        last = self.r.choice([d for d in range(1, n + 1) if n % d == 0])
        shape = [n // last, last]
        written = shape if self.r.random() < 0.5 else [-1, last]
        self.emit("reshape", [v.name], v.dtype, shape, v.magnitude, shape=written)

    def axis(self, v, accept):
        """A random axis of constant extent, as the graph writes it and as an index."""
        fitting = [a for a in range(v.axes) if isinstance(v.entries[a], int) and accept(v.entries[a])]
        if not fitting:
            return None, None
        a = self.r.choice(fitting)
        return (a if self.r.random() < 0.5 else a - v.axes), a

    def slice(self):
        v = self.pick(lambda v: any(isinstance(e, int) and e >= 4 for e in v.entries))
        axis, a = self.axis(v, lambda e: e >= 4)
        n = v.entries[a]
        begin = self.r.randint(0, n // 2)
        end = self.r.randint(begin + 1, n)
        step = self.r.choice([1, 1, 2, 3])
        entries = list(v.entries)
        entries[a] = (end - begin + step - 1) // step
        attrs = {"axis": axis, "begin": begin - n if self.r.random() < 0.3 and begin else begin, "end": end}
        if step > 1:
            attrs["step"] = step
        self.emit("slice", [v.name], v.dtype, entries, v.magnitude, **attrs)

    def concat(self):
        v = self.pick(lambda v: any(isinstance(e, int) for e in v.entries))
        axis, a = self.axis(v, lambda e: e <= 160)
        if a is None:
            return
        others = [w for w in self.values if w.axes == v.axes and w.dtype == v.dtype and isinstance(w.entries[a], int) and w.entries[a] <= 160
                  and all(i == a or w.entries[i] == v.entries[i] for i in range(v.axes))]
        parts = [v] + [self.r.choice(others) for _ in range(self.r.randint(1, 2))]
        entries = list(v.entries)
        entries[a] = sum(p.entries[a] for p in parts)
        self.emit("concat", [p.name for p in parts], v.dtype, entries, max(p.magnitude for p in parts), axis=axis)

    def split(self):
        parts = self.r.choice([2, 3, 4])
        v = self.pick(lambda v: any(isinstance(e, int) and e % parts == 0 for e in v.entries))
        if v is None:
            return
        axis, a = self.axis(v, lambda e: e % parts == 0)
        entries = list(v.entries)
        entries[a] //= parts
        self.emit("split", [v.name], v.dtype, entries, v.magnitude, parts, axis=axis)

    def integers(self):
        a, b = (self.declare("n", "input", "i32", [self.extent(), self.width()], ("integers", -50, 50)) for _ in range(2))
        self.tensors[b]["shape"] = [self.tensors[a]["shape"][1]]
        shape = self.tensors[a]["shape"]
        v = self.emit(self.r.choice(["add", "mul", "sub", "maximum"]), [a, b], "i32", shape)
        w = self.emit("mul", [v.name], "i32", shape, value=self.r.choice([3, 1 << 30]))
        choice = self.r.random()
        if choice < 0.4:
            self.emit("sum", [w.name], "i32", shape[:-1])
        elif choice < 0.7 and "allreduce" not in self.without:
            self.emit("allreduce", [w.name], "i32", shape, reduce=self.r.choice(["sum", "max", "min"]))

    def accumulate(self):
        v = self.pick(lambda v: v.dtype == "f32" and v.constant() and v.magnitude <= 4)
        if v is None:
            return
        state = self.declare("sum", "state", "f32", v.entries, "zero")
        self.ops.append({"op": "add", "in": [state, v.name], "out": state})
        self.read.update([v.name])
        if self.r.random() < 0.5:
            self.emit("mul", [state], "f32", v.entries, v.magnitude * 3, value=0.5)

    # --- collectives ----------------------------------------------------------------------------------------------------------

    def allreduce(self):
        how = self.r.choice(["sum", "sum", "avg", "max", "min"])
        v = self.pick(lambda v: v.dtype in FLOATS and v.magnitude <= 8)
        attrs = {"reduce": how} if how != "sum" else {}
        if self.r.random() < 0.4:
            attrs["algorithm"] = self.r.choice(["oneshot", "twoshot"])
        self.emit("allreduce", [v.name], v.dtype, v.entries, v.magnitude * (self.world**0.5 if how == "sum" else 1), **attrs)

    def times_world(self, entry):
        return entry * self.world if isinstance(entry, int) else f"world * ({entry})" if self.world > 1 else entry

    def allgather(self):
        v = self.pick(lambda v: v.dtype in FLOATS and v.entries[0] != "tokens" or v.entries[0] == "tokens")
        if not isinstance(v.entries[0], int) and v.entries[0] != "tokens":
            return
        self.emit("allgather", [v.name], v.dtype, [self.times_world(v.entries[0])] + v.entries[1:], v.magnitude)

    def blocks(self):
        """A value whose axis 0 is cut into `world` equal blocks, or None."""
        v = self.pick(lambda v: v.dtype in FLOATS and isinstance(v.entries[0], int) and v.entries[0] % self.world == 0)
        return v

    def reduce_scatter(self):
        v = self.blocks()
        if v is None or v.magnitude > 8:
            return
        how = self.r.choice(["sum", "avg", "max"])
        self.emit("reduce_scatter", [v.name], v.dtype, [v.entries[0] // self.world] + v.entries[1:], v.magnitude * self.world**0.5,
                  **({"reduce": how} if how != "sum" else {}))

    def alltoall(self):
        v = self.blocks()
        if v is not None:
            self.emit("alltoall", [v.name], v.dtype, v.entries, v.magnitude)

    def broadcast(self):
        v = self.pick(lambda v: True)
        self.emit("broadcast", [v.name], v.dtype, v.entries, v.magnitude, root=self.r.randrange(self.world))

    def ring_shift(self):
        v = self.pick(lambda v: True)
        self.emit("ring_shift", [v.name], v.dtype, v.entries, v.magnitude, by=self.r.choice([1, -1, 2, "world - 1"]))

    def send_recv(self):
        v = self.pick(lambda v: True)
        last = self.world - 1
        send = {"op": "send", "in": [v.name], "dst": "rank + 1", "if": f"rank < {last}"}
        self.read.add(v.name)
        if self.r.random() < 0.5:
            send["tag"] = 3
        self.ops.append(send)
        attrs = {"src": "rank - 1", "if": "rank > 0", "shape": v.entries, "dtype": v.dtype, **({"tag": 3} if "tag" in send else {})}
        self.emit("recv", [], v.dtype, v.entries, v.magnitude, **attrs)

    def barrier(self):
        self.ops.append({"op": "barrier"})

    # --- the whole ------------------------------------------------------------------------------------------------------------

    def finish(self):
        """Makes outputs of all results that nothing reads, and of some others."""
        makers = {name: op for op in self.ops for name in ([op["out"]] if isinstance(op.get("out"), str) else op.get("out", []))}
        for v in self.values:
            if v.name not in makers or v.name in self.tensors:
                continue
            if v.name not in self.read or self.r.random() < 0.15:
                self.tensors[v.name] = {"kind": "output", "dtype": v.dtype, "shape": v.entries}
        if self.r.random() < 0.5:
            self.r.shuffle(order := list(self.tensors))
            self.tensors = {name: self.tensors[name] for name in order}

    def graph(self, name):
        graph = {"maco": 1, "name": name, "world": self.world}
        if self.dims:
            graph["dims"] = self.dims
        graph.update(tensors=self.tensors, ops=self.ops)
        if (overlap := self.r.choice([None, None, "none", "conservative"])):
            graph["overlap"] = overlap
        return graph

    def inputs(self, rank, seed):
        from numpy_graph import DTYPES, evaluate

        out = {}
        for name, t in self.tensors.items():
            if t["kind"] not in ("input", "param"):
                continue
            random_numbers = np.random.default_rng([seed, rank, *name.encode()])
            shape = [evaluate(e, {"tokens": self.tokens, "world": self.world}) for e in t["shape"]]
            fill = self.filled[name]
            if isinstance(fill, tuple):
                values = random_numbers.integers(fill[1], fill[2], shape)
            else:
                values = random_numbers.standard_normal(shape)
                if t["kind"] == "param" and len(shape) > 1 and fill != "unit":
                    values /= max(shape) ** 0.5
            out[name] = values.astype(DTYPES[t["dtype"]])
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--ops", type=int, default=12, help="about how many (default 12)")
    parser.add_argument("--world", type=int, help="ranks (default: random, 1 to 8)")
    parser.add_argument("--without", default="", metavar="KIND,...", help="kinds of steps to leave out, such as send_recv")
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("--inputs", metavar="in.{rank}.safetensors")
    args = parser.parse_args()

    maker = Maker(args.seed, args.ops, args.world, filter(None, args.without.split(",")))
    text = json.dumps(maker.graph(f"random_{args.seed}"), indent=1) + "\n"
    if args.output == "-":
        sys.stdout.write(text)
    else:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text)
        print(" ".join(maker.options))
    if args.inputs:
        from numpy_graph import rank_file, save_tensors

        for rank in range(maker.world):
            save_tensors(rank_file(args.inputs, rank), maker.inputs(rank, args.seed))


if __name__ == "__main__":
    main()
