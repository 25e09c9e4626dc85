#!/usr/bin/env python3
"""Prints the table of what this version refuses for docs/language.md, by asking macoc.

  tools/refusal-table.py [--macoc macoc]
"""

import argparse
import subprocess
import sys

X = "input x : bf16[8, 64]"
CASES = [
    ("`schedule` = `dynamic`", f"set schedule = dynamic\n{X}\noutput y = relu(x)"),
    ("`send`, `recv` with `backend` = `nccl`",
     f"set backend = nccl\n{X}\nsend(x, dst = 1, if = rank == 0)\n"
     "output y = recv(src = 0, shape = [8, 64], dtype = bf16, if = rank == 1)"),
    ("`algorithm` = `nccl` that converts blocks whose rows dims decide",
     "dim t <= 6\ninput x : bf16[2 * t, 8]\noutput y = reduce_scatter(x, algorithm = nccl, dtype = f32)"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", default="macoc")
    args = parser.parse_args()
    print("| in the graph | message |\n|---|---|")
    for name, body in CASES:
        ran = subprocess.run([args.macoc, "-", "--emit=program", "-o", "/dev/null"], input=f"graph probe(world = 2) {{\n{body}\n}}\n",
                             text=True,
                             capture_output=True, check=False)
        errors = [line.split(" error: ", 1)[1] for line in ran.stderr.splitlines() if line.startswith("<stdin>:") and " error: " in line]
        if ran.returncode == 0 and not errors:
            continue  # it compiles now
        if ran.returncode != 1 or len(errors) != 1:
            sys.exit(f"{name}: status {ran.returncode}\n{ran.stderr}")
        print(f"| {name} | {errors[0]} |")


if __name__ == "__main__":
    main()
