#!/usr/bin/env python3
"""Prints the table of ops by dtype for docs/language.md, by asking macoc whether it compiles each.

  tools/op-table.py [--macoc macoc]
"""

import argparse
import json
import subprocess

from op_graphs import PLAIN

DTYPES = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"]


def with_dtypes(kind, first, others):
    """The graph of `kind` with `first` as the dtype of its first tensor and `others` as that of the rest; ids and results stay i32. `cast`
    is asked what it makes. A comparison's result and a condition stay u8."""
    made = json.loads(json.dumps(PLAIN[kind]))
    tensors = [t for t in made["tensors"].values() if t["dtype"] != "u8"]
    for i, t in enumerate(tensors):
        if t["dtype"] != "i32" and not (kind == "cast" and t["kind"] == "input"):
            t["dtype"] = first if i == 0 else others
    if kind == "cast":
        made["ops"][0]["dtype"] = others
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", default="macoc")
    args = parser.parse_args()

    def compiles(graph):
        return subprocess.run([args.macoc, "-", "--target=cpu", "--emit=program", "-o", "/dev/null"], input=json.dumps(graph), text=True,
                              capture_output=True, check=False).returncode == 0

    print("| op | " + " | ".join(DTYPES) + " | mixed floats |")
    print("|---|" + "---|" * (len(DTYPES) + 1))
    for kind in PLAIN:
        if kind == "barrier":  # no operands
            continue
        cells = ["yes" if compiles(with_dtypes(kind, t, t)) else "-" for t in DTYPES]
        mixed = "yes" if kind not in ("cast", "argmax") and compiles(with_dtypes(kind, "bf16", "f32")) else "-"
        print(f"| `{kind}` | " + " | ".join(cells) + f" | {mixed} |")


if __name__ == "__main__":
    main()
