#!/usr/bin/env python3
"""Runs random graphs through maco-run and compares what it writes with NumPy.

  numpy_test.py --maco-run build/bin/maco-run --seeds 1-20
  numpy_test.py --maco-run build/bin/maco-run --device cuda --gpus 2 --jobs 8 --seeds 1-200

Exit status: 0; 1 if a graph failed; 77 (skipped) if the Python packages of tools/requirements.txt are missing.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def parse_seeds(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def run(command, timeout=None):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {timeout:.0f} s")


def try_seed(seed, args, folder):
    """What went wrong and what was said, "refused" if this version can't compile the graph, or None."""
    graph, inputs, outputs = (os.path.join(folder, f"{seed}.{name}") for name in ("json", "in.{rank}.safetensors", "out.{rank}.safetensors"))
    made = run([sys.executable, os.path.join(HERE, "random_graph.py"), "--seed", str(seed), "--ops", str(args.ops), "--without", args.without,
                "-o", graph, "--inputs", inputs])
    if made.returncode != 0:
        return "random_graph.py failed", made.stderr
    options = made.stdout.split()
    placement = []
    if args.gpus:
        with open(graph, encoding="utf-8") as file:
            placement = ["--ranks-per-gpu", str(-(-json.load(file)["world"] // args.gpus))]
    ran = run([args.maco_run, graph, "--device", args.device, "--inputs", inputs, "--outputs", outputs, *options, *placement, *args.options],
              timeout=args.timeout)
    if ran.returncode == 1 and "can't be compiled by this version" in ran.stderr:
        return "refused", ran.stderr
    if ran.returncode != 0:
        return f"maco-run {' '.join(options)} ended with status {ran.returncode}", ran.stderr
    compared = run([sys.executable, os.path.join(HERE, "numpy_reference.py"), graph, inputs, outputs, "--check", *options])
    if compared.returncode != 0:
        return f"differs from NumPy ({' '.join(options)})", compared.stderr
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpus", type=int, help="GPUs that share the ranks of each graph")
    parser.add_argument("--jobs", type=int, default=1, help="graphs at the same time")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("1-10"))
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

    failed, refused = [], []
    with tempfile.TemporaryDirectory(prefix="maco_numpy_") as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for seed, outcome in zip(args.seeds, pool.map(lambda seed: try_seed(seed, args, folder), args.seeds)):
                if outcome is None:
                    print(f"seed {seed}: ok", flush=True)
                    continue
                what, said = outcome
                (refused if what == "refused" else failed).append(seed)
                print(f"seed {seed}: {what}\n{said}", flush=True)
    total = len(args.seeds)
    print(f"{total - len(failed) - len(refused)} of {total} agree with NumPy, {len(refused)} refused, {len(failed)} failed: {failed}")
    # A generator that only makes what is refused tests nothing.
    return 1 if failed or len(refused) * 2 > total else 0


if __name__ == "__main__":
    sys.exit(main())
