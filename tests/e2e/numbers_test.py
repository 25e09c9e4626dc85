#!/usr/bin/env python3
"""Ops that sum, on numbers that are hard to sum: rows far from zero that hardly differ, rows of one value, very small and very large
ones, and both in one row. What maco-run writes is compared with NumPy in float64, and --check has to find the same.

  numbers_test.py --maco-run build/bin/maco-run

Status 77 (skipped) if the Python packages of tools/requirements.txt are missing."""

import argparse
import os
import subprocess
import sys
import tempfile

SHAPES = [(4, 5), (6, 96), (2, 4096), (1, 20001)]  # by lanes, by warps, by all of a CTA, and more than its registers hold
BOUNDS = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}
OPS = {
    "layernorm": "layernorm({x}, {g}, {h})",
    "rmsnorm": "rmsnorm({x}, {g})",
    "softmax": "softmax({x})",
    "sum": "sum({x}, dtype = f32)",
    "mean": "mean({x}, dtype = f32)",
    "avg": "allreduce({x}, reduce = avg)",
}


def numpy_ops(np):
    def layernorm(x, g, h):
        x = x - x[:, :1]
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g + h

    def softmax(x, g, h):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return {
        "layernorm": layernorm,
        "rmsnorm": lambda x, g, h: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g,
        "softmax": softmax,
        "sum": lambda x, g, h: x.sum(-1),
        "mean": lambda x, g, h: x.mean(-1),
        "avg": lambda x, g, h: x,
    }


def numbers(np):
    """Kinds of values by name: a function from a shape to values, and the dtypes that can hold them."""
    random = np.random.default_rng(7)
    normal = random.standard_normal
    wide = ("f32", "bf16")
    return {
        "spread 1 around 2000": (lambda s: 2000 + normal(s), ("f32", "f16", "bf16")),
        "spread 1e-3 around 1e4": (lambda s: 1e4 + 1e-3 * normal(s), ("f32", "f16", "bf16")),
        "spread 0.1 around -300": (lambda s: -300 + 0.1 * normal(s), ("f32", "f16", "bf16")),
        "spread 10 around 3e7": (lambda s: 3e7 + 10 * normal(s), wide),
        "spread 1e-5 around 0.5": (lambda s: 0.5 + 1e-5 * normal(s), ("f32", "f16", "bf16")),
        "rows of one value": (lambda s: np.broadcast_to(normal((s[0], 1)) * 7.3, s), ("f32",)),
        "1e4 among 1e-3": (lambda s: np.where(random.random(s) < 0.1, 1e4, 1e-3) * normal(s), ("f32", "f16", "bf16")),
        "one far from the rest": (lambda s: np.where(np.arange(s[1]) == 0, 1e4, 1) * normal(s), ("f32", "f16", "bf16")),
        "around 1e12": (lambda s: 1e12 * normal(s), wide),
        "around 1e-20": (lambda s: 1e-20 * normal(s), wide),
    }


def graph_of(dtype):
    lines = [f"graph numbers_{dtype}(world = 2) {{"]
    for i, (rows, columns) in enumerate(SHAPES):
        lines += [f"  input x{i} : {dtype}[{rows}, {columns}]", f"  input g{i} : {dtype}[{columns}]", f"  input h{i} : {dtype}[{columns}]"]
        lines += [f"  output {name}_{i} = {op.format(x=f'x{i}', g=f'g{i}', h=f'h{i}')}" for name, op in OPS.items()]
    return "\n".join(lines + ["}", ""])


def error_of(np, found, right):
    """The relative error of the whole tensor, as --check computes it; 0 if nothing differs."""
    norm = np.sqrt((right * right).sum())
    apart = np.sqrt(((found - right) ** 2).sum())
    return 0.0 if apart == 0 else apart / norm if norm > 0 else np.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    try:
        import numpy as np

        from numpy_graph import DTYPES, load_tensors, save_tensors
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    problems, worst = [], {}
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.{rank}.safetensors")
        for dtype, bound in BOUNDS.items():
            graph = os.path.join(folder, f"{dtype}.maco")
            with open(graph, "w", encoding="utf-8") as file:
                file.write(graph_of(dtype))
            for what, (values, dtypes) in numbers(np).items():
                if dtype not in dtypes:
                    continue
                given = {}
                for i, (rows, columns) in enumerate(SHAPES):
                    given[f"x{i}"] = values((rows, columns)).astype(DTYPES[dtype])
                    given[f"g{i}"] = np.linspace(0.5, 1.5, columns).astype(DTYPES[dtype])
                    given[f"h{i}"] = np.zeros(columns).astype(DTYPES[dtype])
                save_tensors(inputs, given)
                ran = subprocess.run([args.maco_run, graph, "--device=cpu", "--check", "--inputs", inputs, "--outputs", outputs],
                                     capture_output=True, text=True, check=False, timeout=300)
                if ran.returncode != 0:
                    problems.append(f"{dtype}, {what}: --check ends with status {ran.returncode}\n{ran.stdout}{ran.stderr}")
                    continue
                made = load_tensors(outputs.format(rank=1))
                for i in range(len(SHAPES)):
                    operands = [given[f"{name}{i}"].astype(np.float64) for name in "xgh"]
                    for name, op in numpy_ops(np).items():
                        error = error_of(np, made[f"{name}_{i}"].astype(np.float64), op(*operands))
                        worst[name, dtype] = max(worst.get((name, dtype), 0.0), error)
                        # What rows have in common takes no digit of their differences.
                        most = bound / 10 if (name, dtype) == ("layernorm", "f32") else bound
                        if not error <= most:
                            problems.append(f"{dtype}, {what}: {name} of {SHAPES[i]}: error {error:.3g}, more than {most:.3g}")
    for (name, dtype), error in worst.items():
        print(f"{name} {dtype}: worst error {error:.2g}")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
