#!/usr/bin/env python3
"""Runs random graphs through maco-run and compares what it writes with NumPy.

  numpy_test.py --maco-run build/bin/maco-run --seeds 1-20
  numpy_test.py --maco-run build/bin/maco-run --device cuda --gpus 2 --jobs 8 --seeds 1-200

Ends with a table of what ran. Exit status: 0; 1 if a graph failed or was refused, or with --cover if the table has a hole; 77 (skipped) if
the Python packages of tools/requirements.txt are missing.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback

WORLDS = range(1, 9)
DTYPES = ["f32", "f16", "bf16", "i32"]


def parse_seeds(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def run(command, timeout=None):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {timeout:.0f} s")


def try_seed(seed, args, folder):
    """The graph, and what went wrong and what was said, or None. Runs in a process of its own."""
    from numpy_reference import main as compare, parse_arguments, run_deep
    from numpy_graph import rank_file, save_tensors
    from random_graph import Maker

    path, inputs, outputs = (os.path.join(folder, f"{seed}.{name}") for name in ("json", "in.{rank}.safetensors", "out.{rank}.safetensors"))
    maker = Maker(seed, args.ops, without=args.without.split(","))
    graph = maker.graph(f"random_{seed}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(graph, file, indent=1)
    for rank in range(maker.world):
        save_tensors(rank_file(inputs, rank), maker.inputs(rank, seed))
    options = " ".join(maker.options).split()
    placement = ["--ranks-per-gpu", str(-(-maker.world // args.gpus))] if args.gpus else []
    ran = run([args.maco_run, path, "--device", args.device, "--inputs", inputs, "--outputs", outputs, *options, *placement, *args.options],
              timeout=args.timeout)
    if ran.returncode != 0:
        return graph, (f"maco-run {' '.join(options)} ended with status {ran.returncode}", ran.stderr)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            differs = run_deep(compare, parse_arguments([path, inputs, outputs, "--check", *options]))
        except Exception:
            differs = True
            traceback.print_exc()
    return graph, (f"differs from NumPy ({' '.join(options)})", said.getvalue()) if differs else None


class Coverage:
    """What the graphs that ran had."""

    def __init__(self):
        self.ran, self.settings = collections.Counter(), collections.Counter()

    def add(self, graph):
        from numpy_ops import own_dtype

        world = graph["world"]
        dtypes = {name: t["dtype"] for name, t in graph["tensors"].items() if "dtype" in t}
        for op in graph["ops"]:
            first = dtypes[op["in"][0]] if op.get("in") else op.get("dtype", "f32")
            out = op.get("out", [])
            for name in [out] if isinstance(out, str) else out:
                dtypes.setdefault(name, op.get("dtype") or own_dtype(op, [dtypes[n] for n in op.get("in", [])]) or "f32")
            if op["op"] == "where":
                first = dtypes[op["in"][1]]
            self.ran[world, first] += 1
            self.ran[op["op"], first] += 1
            self.settings.update(key for key in ("name", "after", "phase", "priority", "overlap", "overlap_group") if key in op)
        self.settings.update(f"graph's {key}" for key in ("overlap", "overlap_regions", "phases") if key in graph)
        roles = graph.get("sm_roles")
        self.settings[{str: "sm_roles auto", dict: "sm_roles counts", list: "sm_roles ranges"}.get(type(roles), "no sm_roles")] += 1

    def rows(self, without):
        """(name, where it counts, dtypes that it takes)"""
        from numpy_ops import COLLECTIVES, OPS

        floats = {"silu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "div", "pow", "swiglu", "geglu",
                  "rmsnorm", "layernorm", "softmax", "rope", "attention", "mean"}
        others = [] if "send_recv" in without else ["send", "recv"]
        return [(f"{world} ranks", world, DTYPES) for world in WORLDS] + [
            (kind, kind, DTYPES[:3] if kind in floats else DTYPES) for kind in [*OPS, *COLLECTIVES, *others]]

    def report(self, without):
        """Prints the table; returns how many holes it has: a number of ranks with a dtype, an op or a setting that never ran."""
        holes = 0
        print(f"{'ops that ran':<16}" + "".join(f"{t:>6}" for t in DTYPES))
        for name, key, takes in self.rows(without):
            counts = [self.ran[key, t] for t in DTYPES]
            print(f"{name:<16}" + "".join(f"{n:>6}" if t in takes else "     -" for n, t in zip(counts, DTYPES)))
            holes += counts.count(0) if isinstance(key, int) else not any(counts)
        wanted = ["name", "after", "phase", "priority", "overlap", "overlap_group", "graph's overlap", "graph's overlap_regions",
                  "graph's phases", "no sm_roles", "sm_roles auto", "sm_roles counts", "sm_roles ranges"]
        print(", ".join(f"{setting}: {self.settings[setting]}" for setting in wanted))
        return holes + sum(self.settings[setting] == 0 for setting in wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpus", type=int, help="GPUs that share the ranks of each graph")
    parser.add_argument("--jobs", type=int, default=1, help="graphs at the same time")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("1-10"))
    parser.add_argument("--cover", action="store_true", help="fail if the table of what ran has a hole")
    parser.add_argument("--ops", type=int, default=12)
    parser.add_argument("--without", default="", help="kinds of steps that random_graph.py leaves out")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one graph")
    parser.add_argument("--keep", help="folder for the graphs and files (default: temporary)")
    parser.add_argument("options", nargs="*", help="more options of maco-run, after --")
    args = parser.parse_args()

    try:
        import ml_dtypes, numpy, safetensors  # noqa: E401,F401
    except ImportError as missing:
        print(f"SKIPPED: {missing}; tools/setup.sh installs the packages of tools/requirements.txt", file=sys.stderr)
        return 77

    failed, coverage = [], Coverage()
    with tempfile.TemporaryDirectory(prefix="maco_numpy_") as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
            trials = [pool.submit(try_seed, seed, args, folder) for seed in args.seeds]
            for seed, trial in zip(args.seeds, trials):
                graph, outcome = trial.result()
                if outcome is None:
                    coverage.add(graph)
                    continue
                failed.append(seed)
                print(f"seed {seed}: {outcome[0]}\n{outcome[1]}", flush=True)
    holes = coverage.report(args.without)
    total = len(args.seeds)
    print(f"{total - len(failed)} of {total} agree with NumPy, {len(failed)} failed: {failed}")
    if holes:
        print(f"the table has {holes} holes")
    return 1 if failed or (holes and args.cover) else 0


if __name__ == "__main__":
    sys.exit(main())
