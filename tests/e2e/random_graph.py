#!/usr/bin/env python3
"""Writes a random valid graph as JSON, and with --inputs the tensors that it reads.

  random_graph.py --seed 7 -o graph.json --inputs in.{rank}.safetensors

Prints the options of a launch that goes with it ("--dim tokens=3 --scalar pos=5+ --launches 2"). The same seed gives the same files.
Eight seeds in a row have 1 to 8 ranks. The graph keeps its values near 1, so that results can be compared: no overflow, no difference of
nearly equal numbers, no integer made from a rounded float.
"""

import argparse
import json
import math
import random
import sys

import numpy as np

from numpy_graph import DTYPES, evaluate, rank_file, save_tensors

FLOATS = ["f32", "f16", "bf16"]
ALL = FLOATS + ["i32"]
COLLECTIVES = ["allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "ring_shift", "send", "recv", "barrier"]
WRAPPED = 1e12  # the magnitude of integers that may have wrapped around
MOST_ELEMENTS = 40000


class Value:
    """A tensor that ops may read. `entries`: its shape as the graph writes it; `exact`: the same bits whoever computes it."""

    def __init__(self, name, dtype, entries, magnitude=1.0, exact=False):
        self.name, self.dtype, self.entries, self.magnitude = name, dtype, list(entries), magnitude
        self.exact = exact or dtype == "i32"

    @property
    def axes(self):
        return len(self.entries)

    @property
    def last(self):
        return self.entries[-1]

    def constant(self):
        return all(isinstance(e, int) for e in self.entries)


class Maker:
    STEPS = {
        "matmul": 4, "unary": 6, "binary": 4, "gated": 1, "of_positive": 3, "choice": 3, "clamp": 1,
        "norm": 3, "softmax": 1, "rope": 2, "attention": 2, "cached_attention": 2,
        "append": 1, "embedding": 1, "argmax": 1, "reduction": 1, "cast": 1, "copy": 1, "transpose": 1, "reshape": 1, "slice": 1,
        "concat": 1, "split": 1, "accumulate": 1, "allreduce": 3, "allgather": 1, "reduce_scatter": 1, "alltoall": 1, "broadcast": 1,
        "ring_shift": 1, "send_recv": 1, "barrier": 0.3,
    }

    def __init__(self, seed, ops, world=None, without=()):
        self.r = random.Random(seed)
        number = max(seed - 1, 0)
        self.world = world or number % 8 + 1
        self.favourite = ALL[(number + number // 8) % len(ALL)]
        self.tensors, self.ops, self.values, self.options = {}, [], [], []
        self.filled = {}  # name -> how its values are made
        self.settings = {}
        self.dims, self.count, self.read, self.pos = {}, 0, set(), None
        self.tokens = None
        if self.chance(50):
            most = self.r.randint(1, 17)
            self.tokens = self.r.randint(1, most)
            self.dims = {"tokens": {"max": most}}
            if self.chance(70):
                self.options.append(f"--dim tokens={self.tokens}")
            else:
                self.tokens = most
        self.launches = self.r.choice([1, 1, 2, 3])
        self.options.append(f"--launches {self.launches}")
        for _ in range(self.r.randint(1, 3)):
            self.input(self.dtype())
        steps = {name: weight for name, weight in self.STEPS.items() if name not in without}
        # Kinds of steps take turns, so that a few seeds have them all; the others are left to chance.
        names = list(steps)
        plan = [names[(4 * number + i) % len(names)] for i in range(4)] + self.r.choices(names, list(steps.values()), k=ops)
        plan = plan[:ops]
        self.r.shuffle(plan)
        for step in plan:
            getattr(self, step)()
        self.choose_outputs()
        self.choose_settings()

    def chance(self, percent):
        return self.r.random() * 100 < percent

    # --- declarations ---------------------------------------------------------------------------------------------------------

    def fresh(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def declare(self, prefix, kind, dtype, entries, fill="normal"):
        name = self.fresh(prefix)
        self.tensors[name] = {"kind": kind, "dtype": dtype, "shape": list(entries)}
        self.filled[name] = ("integers", -50, 50) if dtype == "i32" and fill == "normal" else fill
        return name

    def extent(self):
        return self.r.choice([1, 2, 3, 5, 7, 8, 16, 31, 33, 64, 65, 100, 130])

    def width(self):
        return self.r.choice([4, 6, 8, 12, 16, 32, 40, 64, 72, 96, 128, 160])

    def rows(self):
        return "tokens" if self.dims and self.chance(60) else self.extent()

    def dtype(self, among=ALL):
        """Most often the seed's favourite, where it is `among`."""
        return self.favourite if self.favourite in among and self.chance(65) else self.r.choice(among)

    def other_float(self, dtype):
        return self.r.choice(FLOATS) if dtype in FLOATS and self.chance(25) else dtype

    def input(self, dtype):
        axes = self.r.choice([1, 2, 2, 2, 2, 3])
        entries = [self.width()] if axes == 1 else [self.rows()] + [self.r.randint(1, 4)] * (axes - 2) + [self.width()]
        return self.bound(dtype, entries)

    def bound(self, dtype, entries):
        value = Value(self.declare("x", "input", dtype, entries), dtype, entries, 50.0 if dtype == "i32" else 1.0, exact=True)
        self.values.append(value)
        return value

    def param(self, dtype, entries, fill="normal"):
        return self.declare("w", "param", dtype, entries, fill)

    def elements(self, entries):
        """The most that there can be."""
        names = {"world": self.world, **{name: d["max"] for name, d in self.dims.items()}}
        return math.prod(evaluate(e, names) for e in entries)

    def pick(self, dtype, accept=lambda v: True, magnitude=WRAPPED):
        """A value of `dtype` that `accept` takes, most likely a recent one; a new input of two axes if there is none."""
        def fits(v):
            small = dtype == "i32" or v.magnitude <= magnitude
            return v.dtype == dtype and small and self.elements(v.entries) <= MOST_ELEMENTS and accept(v)

        found = [v for v in self.values if fits(v)]
        if not found:
            for _ in range(50):
                value = self.input(dtype)
                if fits(value):
                    return value
                self.values.pop()
                del self.tensors[value.name]
            return None
        return found[-1 - min(int(self.r.expovariate(0.7)), len(found) - 1)]

    def emit(self, kind, ins, dtype, entries, magnitude=1.0, outs=1, exact=False, /, **attrs):
        names = [self.fresh("t") for _ in range(outs)]
        op = {"op": kind, "in": ins, "out": names if outs > 1 else names[0], **attrs}
        self.ops.append(op)
        self.read.update(ins)
        made = [Value(n, dtype, entries, magnitude, exact) for n in names]
        self.values += made
        return made[0]

    def moved(self, kind, ins, v, entries, outs=1, /, **attrs):
        """An op whose result has v's values, sometimes of another float type."""
        dtype, more = self.typed(v)
        return self.emit(kind, ins, dtype, entries, v.magnitude, outs, v.exact, **attrs, **more)

    def change_state(self, kind, ins, **attrs):
        self.ops.append({"op": kind, "in": ins, "out": ins[0], "name": self.fresh("s"), **attrs})
        self.read.update(ins[1:])

    # --- ops ------------------------------------------------------------------------------------------------------------------

    def typed(self, v):
        """The type of a result, most often that of the first input, and the attribute that says so."""
        dtype = self.other_float(v.dtype)
        return dtype, ({"dtype": dtype} if dtype != v.dtype else {})

    @staticmethod
    def is_matrix(v):
        return v.axes == 2 and isinstance(v.last, int) and v.last >= 4

    @staticmethod
    def is_rows(v):
        return v.axes >= 2 and isinstance(v.last, int) and v.last >= 4

    def matmul(self):
        a = self.pick(self.dtype(), self.is_matrix, 100)
        n, transposed, whole = self.width(), self.chance(60), a.dtype == "i32"
        dtype, attrs = self.typed(a)
        ins = [a.name, self.param(self.other_float(a.dtype), [n, a.last] if transposed else [a.last, n])]
        if transposed:
            attrs["transpose_b"] = True
        if self.chance(30):
            ins.append(self.param(self.other_float(a.dtype), [n]))
        if self.chance(40):
            attrs["activation"] = "relu" if whole else self.r.choice(["relu", "silu", "gelu"])
        self.emit("matmul", ins, dtype, [a.entries[0], n], WRAPPED if whole else a.magnitude, **attrs)

    def unary(self):
        kind = self.r.choice(["relu", "silu", "gelu", "sigmoid", "tanh", "exp", "neg", "abs", "sin", "cos", "erf"])
        magnitude = {"exp": 1, "sin": 4, "cos": 4}.get(kind, 100)
        v = self.pick(self.dtype(ALL if kind in ("relu", "neg", "abs") else FLOATS), magnitude=magnitude)
        dtype, attrs = self.typed(v)
        if kind == "gelu" and self.chance(50):
            attrs["approximate"] = self.r.choice(["none", "tanh"])
        magnitude = 8 if kind == "exp" else min(v.magnitude, 1) if kind in ("sigmoid", "tanh", "sin", "erf") else v.magnitude
        self.emit(kind, [v.name], dtype, v.entries, magnitude, **attrs)

    def binary(self):
        kind = self.r.choice(["add", "sub", "mul", "maximum", "minimum"])
        a = self.pick(self.dtype(), magnitude=8)
        whole = a.dtype == "i32"
        dtype, attrs = self.typed(a)
        choice, magnitude = self.r.random(), WRAPPED
        alike = [v for v in self.values if v.entries == a.entries and (v.dtype == "i32") == whole and v.name != a.name]
        same = [v for v in alike if whole or v.magnitude <= 8]
        if choice < 0.5 and same and (whole or kind != "sub"):
            b = self.r.choice(same)
            if not whole:
                magnitude = a.magnitude * b.magnitude + 1 if kind == "mul" else a.magnitude + b.magnitude
            self.emit(kind, [a.name, b.name], dtype, a.entries, magnitude, **attrs)
            return
        if not whole:
            magnitude = a.magnitude * 2 if kind == "mul" else a.magnitude + 1
        if choice < 0.8 and isinstance(a.last, int):
            shape = [1] if a.axes == 1 or self.chance(30) else [a.last]
            self.emit(kind, [a.name, self.param(self.other_float(a.dtype), shape)], dtype, a.entries, magnitude, **attrs)
        else:
            value = self.r.choice([3, -1, 1 << 30] if whole else [0.5, 2, -1, 1.25])
            self.emit(kind, [a.name], dtype, a.entries, magnitude, value=value, **attrs)

    def gated(self):
        a = self.pick(self.dtype(FLOATS), magnitude=4)
        same = [v for v in self.values if v.entries == a.entries and v.dtype in FLOATS and v.magnitude <= 4]
        dtype, attrs = self.typed(a)
        kind = self.r.choice(["swiglu", "geglu"])
        if kind == "geglu" and self.chance(70):
            attrs["approximate"] = self.r.choice(["none", "tanh"])
        self.emit(kind, [a.name, self.r.choice(same).name], dtype, a.entries, 16, **attrs)

    def of_positive(self):
        """Logarithms, roots, powers and quotients of numbers from 0.5 on."""
        a = self.pick(self.dtype(FLOATS), magnitude=4)
        square = self.emit("mul", [a.name, a.name], a.dtype, a.entries, a.magnitude**2)
        x = self.emit("add", [square.name], a.dtype, a.entries, a.magnitude**2 + 1, value=0.5)
        kind = self.r.choice(["log", "sqrt", "rsqrt", "pow", "div"])
        dtype, attrs = self.typed(x)
        if kind == "div":
            if self.chance(50):
                self.emit("div", [a.name, x.name], dtype, a.entries, a.magnitude * 2, **attrs)
            else:
                self.emit("div", [a.name], dtype, a.entries, a.magnitude * 2, value=self.r.choice([3, -0.7, 1.25]), **attrs)
        elif kind == "pow":
            self.emit("pow", [x.name], dtype, x.entries, x.magnitude**2, value=self.r.choice([-1, 0.5, 1.3, 2, -0.75]), **attrs)
        else:
            self.emit(kind, [x.name], dtype, x.entries, max(x.magnitude, 2), **attrs)

    def choice(self):
        """A `where` by a comparison of numbers that no op has rounded: it chooses between two tensors, or a tensor and a number."""
        a = self.pick(self.dtype(), lambda v: v.exact)
        whole = a.dtype == "i32"
        kind = self.r.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        mask = self.fresh("t")
        if self.chance(50):
            self.ops.append({"op": kind, "in": [a.name], "out": mask, "value": 3 if whole else self.r.choice([0, 0.5, -1.25])})
        else:
            b = Value(self.declare("x", "input", self.other_float(a.dtype), a.entries), "", [], 0)
            self.ops.append({"op": kind, "in": [a.name, b.name], "out": mask})
        self.read.update([a.name, mask])
        same = [v for v in self.values if v.entries == a.entries and (v.dtype == "i32") == whole]
        one, other = self.r.choice(same), self.r.choice(same)
        dtype, attrs = self.typed(one)
        if self.chance(50):
            self.emit("where", [mask, one.name, other.name], dtype, a.entries, max(one.magnitude, other.magnitude), **attrs)
        else:
            self.emit("where", [mask, one.name], dtype, a.entries, one.magnitude, value=-2, **attrs)

    def clamp(self):
        v = self.pick(self.dtype())
        whole = v.dtype == "i32"
        bounds = self.r.choice([{"min": -3 if whole else -0.75}, {"max": 7 if whole else 1.5}, {"min": -10 if whole else -0.5, "max": 2}])
        dtype, attrs = self.typed(v)
        self.emit("clamp", [v.name], dtype, v.entries, v.magnitude, **bounds, **attrs)

    def norm(self):
        v = self.pick(self.dtype(FLOATS), self.is_rows, 100)
        dtype, attrs = self.typed(v)
        if self.chance(70):
            attrs["eps"] = 1e-3
        kind, params = self.r.choice([("rmsnorm", 1), ("layernorm", 2)])
        self.emit(kind, [v.name] + [self.param(self.other_float(v.dtype), [v.last]) for _ in range(params)], dtype, v.entries, 2, **attrs)

    def softmax(self):
        v = self.pick(self.dtype(FLOATS), self.is_rows, 4)
        dtype, attrs = self.typed(v)
        self.emit("softmax", [v.name], dtype, v.entries, 1, **attrs)

    def heads(self, v):
        fitting = [d for d in (4, 8, 16, 32, 64) if v.last % d == 0]
        return self.r.choice(fitting) if fitting else None

    def with_heads(self, magnitude, accept=lambda v: True):
        return self.pick(self.dtype(FLOATS), lambda v: self.is_matrix(v) and self.heads(v) and accept(v), magnitude)

    def position(self):
        if self.pos is None:
            self.pos = "pos"
            self.tensors["pos"] = {"kind": "scalar", "range": [0, 24]}
            self.options.append(f"--scalar pos={self.r.randint(0, 20)}{'+' if self.chance(70) else ''}")
        return self.pos

    def rope(self):
        v = self.with_heads(100)
        dtype, attrs = self.typed(v)
        attrs.update(head_dim=self.heads(v))
        if self.chance(50):
            attrs["interleaved"] = True
        turned = attrs["head_dim"]
        if self.chance(30):
            turned = attrs["rotary_dim"] = 2 * self.r.randint(1, turned // 2)
        if self.chance(20):
            attrs["attention_factor"] = 1.25
        ins, given = [v.name], []
        if self.chance(40):
            rows, width = 140, turned // self.r.choice([1, 2])
            tables = [self.declare(name, "input", self.r.choice(["f32", "bf16"]), [rows, width]) for name in ("cosines",)]
            kind = self.tensors[tables[0]]["dtype"]
            tables.append(self.declare("sines", "input", kind, [rows, width]))
            if self.chance(50):
                ins.append(self.declare("p", "input", "i32", [v.entries[0]], ("integers", 0, rows)))
            else:
                attrs["position"] = 0
            self.emit("rope", ins + tables, dtype, v.entries, v.magnitude * 2, **attrs)
            return
        if self.chance(30):
            given = [self.declare("f", self.r.choice(["input", "param"]), "f32", [turned // 2])]
        else:
            attrs.update(theta=self.r.choice([10000, 500000.0]))
        if not given and self.chance(30):
            attrs["scaling"] = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 64}
        if self.chance(30):
            ins.append(self.declare("p", "input", "i32", [v.entries[0]], ("integers", 0, 4096)))
        else:
            attrs["position"] = self.r.choice([3, "rank * 2 + 1", self.position(), self.position() + " + 1"])
        self.emit("rope", ins + given, dtype, v.entries, v.magnitude * 1.25, **attrs)

    def attention(self):
        q = self.with_heads(4)
        d = self.heads(q)
        group = self.r.choice([g for g in (1, 2, 3, 4) if (q.last // d) % g == 0])
        s = self.r.randint(1, 70)
        k, v = (self.declare("x", "input", self.other_float(q.dtype), [s, q.last // group]) for _ in range(2))
        dtype, attrs = self.typed(q)
        length = s
        if s > 26 and self.chance(30):
            attrs["length"], length = f"{self.position()} + 2", 2
        elif s >= self.world and self.chance(40):
            length = self.r.randint(1, s - self.world + 1)
            attrs["length"] = self.r.choice([length, f"rank + {length}"])
        # Queries that no key comes before have nothing to see.
        if isinstance(q.entries[0], int) and q.entries[0] <= length and self.chance(60):
            attrs["causal"] = True
        if self.chance(30):
            attrs["scale"] = 0.2
        self.emit("attention", [q.name, k, v], dtype, q.entries, 1, head_dim=d, **attrs, **self.scores("causal" in attrs))

    def scores(self, causal):
        """Which keys rows see, and what becomes of scores."""
        attrs = {}
        if causal and self.chance(40):
            attrs["window"] = self.r.choice([1, 2, 5, 17, 40, 100])
        if self.chance(25):
            attrs["softcap"] = self.r.choice([0.5, 2, 30])
        return attrs

    def cache(self, x):
        """A state to which x is appended, and where."""
        at = self.r.choice([self.position(), self.position(), self.position() + " + rank", self.r.randint(0, 24)])
        rows = self.elements(x.entries[:1]) + 24 + self.world + self.r.randint(0, 9)
        cache = self.declare("cache", "state", x.dtype, [rows, x.last], "zero")
        self.change_state("kv_append", [cache, x.name], at=at)
        return cache, at

    def append(self):
        x = self.pick(self.dtype(), self.is_matrix, 100)
        cache, _ = self.cache(x)
        if self.chance(50):
            self.emit("copy", [cache], x.dtype, self.tensors[cache]["shape"], x.magnitude)

    def cached_attention(self):
        q = self.with_heads(4)
        d = self.heads(q)
        group = self.r.choice([g for g in (1, 2) if (q.last // d) % g == 0])
        k = self.emit("matmul", [q.name, self.param(q.dtype, [q.last // group, q.last])], q.dtype, [q.entries[0], q.last // group],
                      q.magnitude,
                      transpose_b=True)
        cache, at = self.cache(k)
        self.emit("attention", [q.name, cache, cache], q.dtype, q.entries, q.magnitude, head_dim=d, causal=True,
                  length=f"{at} + {q.entries[0]}", **self.scores(True))

    def embedding(self):
        dtype, vocabulary, n = self.dtype(), self.r.choice([7, 100, 1000]), self.width()
        shape = [self.rows()] + ([self.r.randint(1, 3)] if self.chance(30) else [])
        ids = self.declare("ids", "input", "i32", shape, ("integers", 0, vocabulary))
        table = Value(self.param(dtype, [vocabulary, n], "unit" if dtype in FLOATS else "normal"), dtype, [],
                      50.0 if dtype == "i32" else 1.0, True)
        self.moved("embedding", [table.name, ids], table, shape + [n])

    def argmax(self):
        v = self.pick(self.dtype(), lambda v: v.axes >= 2 and isinstance(v.last, int))
        name = self.fresh("y")
        self.tensors[name] = {"kind": "output", "dtype": "i32", "shape": v.entries[:-1]}
        self.ops.append({"op": "argmax", "in": [v.name], "out": name})
        self.read.add(v.name)

    def reduction(self):
        t = self.dtype()
        kind = self.r.choice(["sum", "max"] if t == "i32" else ["sum", "mean", "max"])
        v = self.pick(t, lambda v: self.is_rows(v) and v.last <= 72, 8)
        if t == "i32":
            self.emit(kind, [v.name], t, v.entries[:-1], WRAPPED)
            return
        # It reduces squares, so that sums don't cancel.
        square = self.emit("mul", [v.name, v.name], t, v.entries, v.magnitude**2)
        dtype, attrs = self.typed(square)
        self.emit(kind, [square.name], dtype, v.entries[:-1], v.magnitude**2 * (v.last if kind == "sum" else 3), **attrs)

    def cast(self):
        v = self.pick(self.dtype())
        to = self.r.choice(ALL)
        if to == "i32" and not v.exact or v.magnitude > 1000 and v.dtype == "i32":
            to = v.dtype
        self.emit("cast", [v.name], to, v.entries, v.magnitude, 1, v.exact, dtype=to)

    def copy(self):
        v = self.pick(self.dtype())
        self.moved("copy", [v.name], v, v.entries)

    def transpose(self):
        v = self.pick(self.dtype(), lambda v: v.constant() and v.axes >= 2)
        perm = list(range(v.axes))
        self.r.shuffle(perm)
        attrs = {"perm": perm}
        if self.chance(30):
            perm, attrs = list(reversed(range(v.axes))), {}
        self.moved("transpose", [v.name], v, [v.entries[p] for p in perm], **attrs)

    def reshape(self):
        v = self.pick(self.dtype(), Value.constant)
        n = math.prod(v.entries)
        last = self.r.choice([d for d in range(1, n + 1) if n % d == 0])
        self.moved("reshape", [v.name], v, [n // last, last], shape=self.r.choice([[n // last, last], [-1, last]]))

    def axis(self, v, accept):
        """A random axis of constant extent, as the graph writes it and as an index."""
        a = self.r.choice([a for a in range(v.axes) if isinstance(v.entries[a], int) and accept(v.entries[a])])
        return (a if self.chance(50) else a - v.axes), a

    def slice(self):
        def long(e):
            return isinstance(e, int) and e >= 4

        v = self.pick(self.dtype(), lambda v: any(map(long, v.entries)))
        axis, a = self.axis(v, long)
        n, entries, attrs = v.entries[a], list(v.entries), {"axis": axis}
        if n % self.world == 0 and self.chance(30):
            part = n // self.world
            attrs.update(begin=f"rank * {part}", end=f"rank * {part} + {part}")
            entries[a] = part
        else:
            begin = self.r.randint(0, n // 2)
            end, step = self.r.randint(begin + 1, n), self.r.choice([1, 1, 2, 3])
            attrs.update(begin=begin - n if self.chance(30) and begin else begin, end=end)
            if step > 1:
                attrs["step"] = step
            entries[a] = (end - begin + step - 1) // step
        self.moved("slice", [v.name], v, entries, **attrs)

    def concat(self):
        def short(e):
            return isinstance(e, int) and e <= 160

        v = self.pick(self.dtype(), lambda v: any(map(short, v.entries)) and self.elements(v.entries) <= MOST_ELEMENTS // 3)
        axis, a = self.axis(v, short)
        others = [w for w in self.values if w.axes == v.axes and w.dtype == v.dtype and short(w.entries[a])
                  and all(i == a or w.entries[i] == v.entries[i] for i in range(v.axes))]
        parts = [v] + [self.r.choice(others) for _ in range(self.r.randint(1, 2))]
        entries = list(v.entries)
        entries[a] = sum(p.entries[a] for p in parts)
        joined = Value("", v.dtype, entries, max(p.magnitude for p in parts), all(p.exact for p in parts))
        self.moved("concat", [p.name for p in parts], joined, entries, axis=axis)

    def split(self):
        parts = self.r.choice([2, 3, 4])

        def even(e):
            return isinstance(e, int) and e % parts == 0

        v = self.pick(self.dtype(), lambda v: any(map(even, v.entries)))
        axis, a = self.axis(v, even)
        entries = list(v.entries)
        entries[a] //= parts
        self.moved("split", [v.name], v, entries, parts, axis=axis)

    def accumulate(self):
        v = self.pick(self.r.choice(["f32", "i32"]), Value.constant, 4)
        state = self.declare("sum", "state", v.dtype, v.entries, "zero")
        self.change_state("add", [state, v.name])
        if self.chance(50):
            self.emit("mul", [state], v.dtype, v.entries, v.magnitude * 3, value=3 if v.dtype == "i32" else 0.5)

    # --- collectives ----------------------------------------------------------------------------------------------------------

    def reduces(self, v):
        how = self.r.choice(["sum", "sum", "max", "min"] + ["avg"] * (v.dtype in FLOATS))
        return how, ({"reduce": how} if how != "sum" or self.chance(20) else {})

    def reduced(self, kind, v, entries, algorithms):
        how, attrs = self.reduces(v)
        dtype, more = self.typed(v)
        if self.chance(40):
            # numpy_ops.py rounds once.
            rounds = v.dtype in ("f16", "bf16") and how in ("sum", "avg")
            attrs["algorithm"] = self.r.choice([a for a in algorithms if a != "ring" or not rounds])
        magnitude = WRAPPED if v.dtype == "i32" else v.magnitude * (self.world**0.5 if how == "sum" else 1)
        self.emit(kind, [v.name], dtype, entries, magnitude, **attrs, **more)

    def allreduce(self):
        v = self.pick(self.dtype(), magnitude=8)
        self.reduced("allreduce", v, v.entries, ["auto", "oneshot", "twoshot", "ring"])

    def allgather(self):
        v = self.pick(self.dtype(), lambda v: self.elements(v.entries) * self.world <= MOST_ELEMENTS)
        rows = v.entries[0] * self.world if isinstance(v.entries[0], int) else f"world * ({v.entries[0]})"
        attrs = {"algorithm": self.r.choice(["oneshot", "ring"])} if self.chance(20) else {}
        self.moved("allgather", [v.name], v, [rows] + v.entries[1:], **attrs)

    def blocks(self, dtype, magnitude=WRAPPED):
        """A value whose axis 0 is cut into `world` equal blocks."""
        def cut(v):
            return isinstance(v.entries[0], int) and v.entries[0] % self.world == 0

        if any(v.dtype == dtype and cut(v) for v in self.values) and self.chance(70):
            return self.pick(dtype, cut, magnitude)
        return self.bound(dtype, [self.world * self.r.randint(1, 9), self.width()])

    def reduce_scatter(self):
        v = self.blocks(self.dtype(), 8)
        self.reduced("reduce_scatter", v, [v.entries[0] // self.world] + v.entries[1:], ["auto", "oneshot", "ring"])

    def alltoall(self):
        v = self.blocks(self.dtype())
        self.moved("alltoall", [v.name], v, v.entries)

    def broadcast(self):
        v = self.pick(self.dtype())
        root = self.r.randrange(self.world)  # says the algorithm, too: seeds draw what they did before
        self.moved("broadcast", [v.name], v, v.entries, root=root, **({"algorithm": "twoshot"} if root % 2 else {}))

    def ring_shift(self):
        v = self.pick(self.dtype())
        self.moved("ring_shift", [v.name], v, v.entries, **({"by": self.r.choice([-1, 2, "world - 1"])} if self.chance(75) else {}))

    def send_recv(self):
        v = self.pick(self.dtype())
        last = self.world - 1
        to, source, senders, receivers = self.r.choice([
            ("rank + 1", "rank - 1", f"rank < {last}", "rank > 0"),
            ("(rank + 1) % world", "(rank - 1) % world", None, None),
            (f"{last} - rank", f"{last} - rank", None, None),
            ("rank", "rank", "rank > 0", "rank > 0"),
            (0, last, f"rank == {last}", "rank == 0"),
        ])
        tag = {"tag": 3} if self.chance(50) else {}
        self.ops.append({"op": "send", "in": [v.name], "dst": to, **({"if": senders} if senders else {}), **tag})
        self.read.add(v.name)
        attrs = {"src": source, **({"if": receivers} if receivers else {}), "shape": v.entries, "dtype": v.dtype, **tag}
        self.emit("recv", [], v.dtype, v.entries, v.magnitude, **attrs)

    def barrier(self):
        self.ops.append({"op": "barrier", "name": self.fresh("b")})

    # --- the whole ------------------------------------------------------------------------------------------------------------

    def choose_outputs(self):
        """Makes outputs of all results that nothing reads, and of some others."""
        made = {name for op in self.ops for name in np.atleast_1d(op.get("out", []))}
        for v in self.values:
            if v.name in made and v.name not in self.tensors and (v.name not in self.read or self.chance(15)):
                self.tensors[v.name] = {"kind": "output", "dtype": v.dtype, "shape": v.entries}
        if self.chance(50):
            order = list(self.tensors)
            self.r.shuffle(order)
            self.tensors = {name: self.tensors[name] for name in order}

    def choose_settings(self):
        """What changes no value: roles, overlap, order beyond that of the data, names."""
        overlaps = ["none", "conservative", "aggressive"]
        for op in self.ops:
            if "name" not in op and ("out" not in op or self.chance(15)):
                op["name"] = self.fresh("op.")
            if self.chance(10):
                op["priority"] = self.r.choice(["high", "normal", "low"])
            if self.chance(8):
                op["overlap"] = self.r.choice(overlaps)
        names = [op.get("name") or str(np.atleast_1d(op["out"])[0]) for op in self.ops]
        for i, op in enumerate(self.ops):
            if i > 0 and self.chance(10):
                op["after"] = [self.r.choice(names[:i])]
        if self.chance(25):
            for op in self.ops:
                if self.chance(50):
                    op["overlap_group"] = self.r.choice(["a", "b"])
        if len(self.ops) > 2 and self.chance(30):
            border = self.r.randrange(1, len(self.ops))
            for i, op in enumerate(self.ops):
                if self.chance(60):
                    op["phase"] = "first" if i < border else "then"
            self.settings["phases"] = [{"name": "first"}, {"name": "then", "depends_on": ["first"]}]
        if (members := [name for name in names if self.chance(30)]) and self.chance(25):
            self.settings["overlap_regions"] = [{"name": "together", "ops": members}]
        if self.chance(40):
            self.settings["overlap"] = self.r.choice(overlaps)
        compute = self.r.randint(1, 6)
        comm = self.r.randint(1, 8 - compute)
        roles = self.r.choice(["none", "auto", "counts", "ranges", "ranges"])
        if roles == "auto":
            self.settings["sm_roles"] = "auto"
        elif roles == "counts":
            self.settings["sm_roles"] = {"compute": compute, "comm": comm}
        elif roles == "ranges":
            self.settings["sm_roles"] = self.ranges(compute, comm)

    def ranges(self, compute, comm):
        parts = [(compute, {"role": "compute"})]
        kinds = sorted({op["op"] for op in self.ops} - set(COLLECTIVES))
        if compute >= 2 and len(kinds) >= 2 and self.chance(70):
            self.r.shuffle(kinds)
            half = len(kinds) // 2
            # With one rank collectives are copies, so somebody must take anything.
            rest = {"tasks": kinds[half:]} if self.world > 1 and self.chance(50) else {}
            parts = [(compute // 2, {"role": "compute", "tasks": kinds[:half]}), (compute - compute // 2, {"role": "compute", **rest})]
        parts.insert(0 if self.chance(30) else len(parts), (comm, {"role": "comm"}))
        ranges, at = [], 0
        for sms, what in parts:
            ranges.append({"sms": [at, at + sms], **what})
            at += sms
        return ranges

    def graph(self, name):
        graph = {"maco": 1, "name": name, "world": self.world}
        if self.dims:
            graph["dims"] = self.dims
        return {**graph, "tensors": self.tensors, "ops": self.ops, **self.settings}

    def inputs(self, rank, seed):
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
    parser.add_argument("--world", type=int, help="ranks (default: 1 to 8, by the seed)")
    parser.add_argument("--without", default="", metavar="KIND,...", help="kinds of steps to leave out, such as send_recv")
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("--inputs", metavar="in.{rank}.safetensors")
    args = parser.parse_args()

    maker = Maker(args.seed, args.ops, args.world, args.without.split(","))
    text = json.dumps(maker.graph(f"random_{args.seed}"), indent=1) + "\n"
    if args.output == "-":
        sys.stdout.write(text)
    else:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text)
        print(" ".join(maker.options))
    if args.inputs:
        for rank in range(maker.world):
            save_tensors(rank_file(args.inputs, rank), maker.inputs(rank, args.seed))


if __name__ == "__main__":
    main()
