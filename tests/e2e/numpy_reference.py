#!/usr/bin/env python3
"""Computes a graph with NumPy, knowing nothing of MACO but the graph format, and compares MACO's outputs with it.

  numpy_reference.py graph.json in.{rank}.safetensors out.{rank}.safetensors --check

Inputs and params come from the first files (states too, where they are bound there), MACO's outputs and states from the second.
Without --check the second files are written. Exit status: 0, or 3 if a tensor differs.
"""

import argparse
import sys
import threading

import numpy as np

from numpy_graph import DTYPES, evaluate, is_float, load_graph, load_tensors, rank_file, rounded, save_tensors, shape_of, wide
from numpy_ops import COLLECTIVES, MOVES, OPS, own_dtype

BOUNDS = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2, "f8e4m3": 1e-1, "f8e5m2": 1e-1, "i32": 0.0, "u8": 0.0}


class Launch:
    """One launch on all ranks. Results are computed when asked for, so that nothing depends on an order between ranks."""

    def __init__(self, graph, bound, values):
        self.graph, self.bound, self.values = graph, bound, values
        self.dtypes = {}
        self.memo = {}
        self.writers = []  # per op: tensor -> the op that wrote it last before this one
        latest = {}
        for i, op in enumerate(graph["ops"]):
            self.writers.append(dict(latest))
            for name in op["out"]:
                self.dtypes[name] = self.dtype_of(op, name)
                latest[name] = i
        self.latest = latest
        self.letters = self.match_letters()

    def names(self, rank):
        return {**self.values, "rank": rank, "world": self.graph["world"]}

    def dtype_of(self, op, name):
        if name in self.graph["tensors"]:
            return self.graph["tensors"][name]["dtype"]
        if "dtype" in op:
            return op["dtype"]
        return own_dtype(op, [self.dtypes.get(t) or self.graph["tensors"][t]["dtype"] for t in op["in"]])

    def match_letters(self):
        """(receive, rank) -> (send, rank)"""
        ends = {}
        for i, op in enumerate(self.graph["ops"]):
            if op["op"] not in ("send", "recv"):
                continue
            for rank in range(self.graph["world"]):
                names = self.names(rank)
                if not evaluate(op.get("if", 1), names):
                    continue
                tag = evaluate(op.get("tag", 0), names)
                if op["op"] == "send":
                    channel = (rank, evaluate(op["dst"], names), tag)
                else:
                    channel = (evaluate(op["src"], names), rank, tag)
                ends.setdefault(channel, {"send": [], "recv": []})[op["op"]].append((i, rank))
        letters = {}
        for channel, both in ends.items():
            if len(both["send"]) != len(both["recv"]):
                raise ValueError(f"{channel}: {len(both['send'])} sends meet {len(both['recv'])} receives")
            letters.update(zip(both["recv"], both["send"]))
        return letters

    def read(self, rank, name, before):
        """The tensor as op `before` reads it (all ops: after the launch)."""
        writer = (self.writers[before] if before < len(self.writers) else self.latest).get(name)
        if writer is None:
            return self.bound[rank][name]
        return self.result(rank, writer)[self.graph["ops"][writer]["out"].index(name)]

    def result(self, rank, i):
        if (rank, i) not in self.memo:
            op = self.graph["ops"][i]
            with np.errstate(all="ignore"):
                values = self.compute(rank, i, op)
            self.memo[rank, i] = [rounded(v, self.dtypes[name]) for v, name in zip(values, op["out"])]
        return self.memo[rank, i]

    def compute(self, rank, i, op):
        names = self.names(rank)
        kind = op["op"]
        if kind in COLLECTIVES:
            ins = [self.read(r, op["in"][0], i) for r in range(self.graph["world"])]
            return [COLLECTIVES[kind](op, ins, rank, names)]
        if kind == "recv":
            if (i, rank) in self.letters:
                send, source = self.letters[i, rank]
                return [wide(self.read(source, self.graph["ops"][send]["in"][0], send))]
            out = self.graph["tensors"].get(op["out"][0], op)
            return [np.zeros(shape_of(out, names))]
        values = OPS[kind](op, [self.read(rank, name, i) for name in op["in"]], names)
        return values if isinstance(values, list) else [values]


def run_launches(graph, bound, dims, scalars, launches):
    """Runs all launches and returns the last; `bound` ends up with the states."""
    for launch in range(launches):
        values = {name: d["max"] for name, d in graph["dims"].items()}
        values.update(dims)
        values.update({name: value + step * launch for name, (value, step) in scalars.items()})
        for rank in range(graph["world"]):
            for name, tensor in graph["tensors"].items():
                if tensor["kind"] == "state":
                    shape = shape_of(tensor, {**values, "world": graph["world"]})
                    bound[rank].setdefault(name, np.zeros(shape, DTYPES[tensor["dtype"]]))
        last = Launch(graph, bound, values)
        results = [
            {name: last.read(rank, name, len(graph["ops"])) for name, t in graph["tensors"].items() if t["kind"] in ("output", "state")}
            for rank in range(graph["world"])
        ]
        for rank, tensors in enumerate(results):
            bound[rank] = {**bound[rank], **{n: t for n, t in tensors.items() if graph["tensors"][n]["kind"] == "state"}}
    return last, results


# --- comparison ---------------------------------------------------------------------------------------------------------------


def bounds_of(graph, dtypes):
    """The bound of a tensor's dtype, or of the coarsest dtype that values on the way to it were rounded to."""
    coarsest = {}
    sent = [op["in"][0] for op in graph["ops"] if op["op"] == "send"]
    while True:
        before = dict(coarsest)
        for op in graph["ops"]:
            sources = op["in"][:1] if op["op"] == "embedding" else sent if op["op"] == "recv" else op["in"]
            worst = max([coarsest.get(name, 0.0) for name in sources], default=0.0)
            if worst == 0.0 and op["op"] in MOVES:
                continue
            for name in op["out"]:
                coarsest[name] = max(coarsest.get(name, 0.0), worst, BOUNDS[dtypes[name]])
        if coarsest == before:
            return lambda name: max(coarsest.get(name, 0.0), BOUNDS[graph["tensors"][name]["dtype"]] if name in graph["tensors"] else 0.0)


def differs(actual, expected, bound):
    """Why `actual` isn't `expected`, or None."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"it is {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    if expected.dtype.kind in "iu":
        return None if (actual == expected).all() else f"{(actual != expected).sum()} of {expected.size} integers differ"
    a, e = (t.astype(np.float64).reshape(-1, t.shape[-1]) for t in (actual, expected))
    finite = np.isfinite(e)
    if not np.array_equal(np.where(finite, 0, e), np.where(np.isfinite(a), 0, a), equal_nan=True):
        return "NaN or infinity stand in other places"
    a, e = np.where(finite, a, 0), np.where(finite, e, 0)
    d = a - e
    mean_square = (e * e).mean()
    if (d * d).sum() > bound**2 * (e * e).sum():
        return f"relative error {np.sqrt((d * d).sum() / (e * e).sum()):.3g} > {bound}"
    for r in range(0, len(e), 64):
        for c in range(0, e.shape[1], 64):
            block, difference = e[r : r + 64, c : c + 64], d[r : r + 64, c : c + 64]
            norm = max((block * block).sum(), mean_square * block.size)
            if (difference * difference).sum() > bound**2 * norm:
                error = np.sqrt((difference * difference).sum() / norm)
                return f"relative error {error:.3g} > {bound} in rows {r}.., columns {c}.."
    return None


def argmax_differs(actual, expected, values, bound):
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"it is {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    values = values.astype(np.float64).reshape(-1, values.shape[-1])
    for row, (a, e) in enumerate(zip(actual.reshape(-1), expected.reshape(-1))):
        if a == e:
            continue
        room = bound * max(abs(values[row, e]), np.sqrt((values[row] ** 2).mean()))
        if not 0 <= a < values.shape[1] or not values[row, e] - values[row, a] <= room:
            return f"{a} in row {row}, expected {e}"
    return None


def check(graph, last, results, pattern, rtol):
    bound_of = bounds_of(graph, last.dtypes)
    makers = {op["out"][0]: (i, op) for i, op in enumerate(graph["ops"]) if op["op"] == "argmax"}
    failures = 0
    for rank in range(graph["world"]):
        actual = load_tensors(rank_file(pattern, rank))
        for name, expected in results[rank].items():
            bound = rtol if rtol is not None and is_float(graph["tensors"][name]["dtype"]) else bound_of(name)
            if name not in actual:
                why = "it is missing"
            elif name in makers:
                i, op = makers[name]
                why = argmax_differs(actual[name], expected, last.read(rank, op["in"][0], i), rtol or bound_of(op["in"][0]))
            else:
                why = differs(actual[name], expected, bound)
            if why:
                failures += 1
                print(f"'{name}' on rank {rank}: {why}", file=sys.stderr)
    return failures


def parse_value(text):
    name, _, value = text.partition("=")
    return name, (int(value.rstrip("+")), 1 if value.endswith("+") else 0)


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("inputs")
    parser.add_argument("outputs")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--scalar", action="append", default=[], metavar="NAME=N[+]")
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--rtol", type=float)
    return parser.parse_args(argv)


def main(args):
    graph = load_graph(args.graph)
    bound = [load_tensors(rank_file(args.inputs, rank)) for rank in range(graph["world"])]
    dims = {name: value for name, (value, _) in map(parse_value, args.dim)}
    last, results = run_launches(graph, bound, dims, dict(map(parse_value, args.scalar)), args.launches)
    if not args.check:
        for rank, tensors in enumerate(results):
            save_tensors(rank_file(args.outputs, rank), tensors)
        return 0
    return 3 if check(graph, last, results, args.outputs, args.rtol) else 0


def run_deep(function, *args):
    """Calls function(*args) with room for recursion along a deep graph; raises what it raises."""
    outcome = []

    def body():
        try:
            outcome.append((function(*args), None))
        except BaseException as error:
            outcome.append((None, error))

    sys.setrecursionlimit(1000000)
    threading.stack_size(512 * 1024 * 1024)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


if __name__ == "__main__":
    sys.exit(run_deep(main, parse_arguments()))
