#!/usr/bin/env python3
"""Prints the table of ops by dtype for docs/language.md, by asking macoc whether it compiles each.

  tools/op-table.py [--macoc macoc]
"""

import argparse
import subprocess

DTYPES = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"]
UNARY = "input x : {t}[6, 8]\n output y = {op}(x)"
BINARY = "input x : {t}[6, 8]\n input z : {t}[6, 8]\n output y = {op}(x, z)"
OPS = {
    "matmul": "input x : {t}[6, 8]\n param w : {t}[8, 4]\n output y = matmul(x, w)",
    **{op: BINARY for op in ("add", "sub", "mul", "maximum", "minimum", "swiglu")},
    **{op: UNARY for op in ("relu", "silu", "gelu", "sigmoid", "tanh", "exp", "softmax", "argmax", "sum", "mean", "max", "copy", "transpose")},
    "rmsnorm": "input x : {t}[6, 8]\n param w : {t}[8]\n output y = rmsnorm(x, w)",
    "layernorm": "input x : {t}[6, 8]\n param w : {t}[8]\n param b : {t}[8]\n output y = layernorm(x, w, b)",
    "rope": "input x : {t}[6, 8]\n output y = rope(x, head_dim = 4, position = 2)",
    "attention": "input q : {t}[6, 8]\n input k : {t}[6, 4]\n input v : {t}[6, 4]\n output y = attention(q, k, v, head_dim = 4)",
    "kv_append": "state c : {t}[6, 8]\n input x : {t}[1, 8]\n c = kv_append(c, x, at = 3)",
    "embedding": "param e : {t}[6, 8]\n input ids : i32[3]\n output y = embedding(e, ids)",
    "cast": "input x : f32[6, 8]\n output y = cast(x, dtype = {t})",
    "reshape": "input x : {t}[6, 8]\n output y = reshape(x, shape = [8, 6])",
    "slice": "input x : {t}[6, 8]\n output y = slice(x, axis = 1, begin = 2, end = 5)",
    "concat": "input x : {t}[6, 8]\n output y = concat(x, x, axis = 0)",
    "split": "input x : {t}[6, 8]\n a, b = split(x, axis = 1)\n output y = copy(a)\n output z = copy(b)",
    "allreduce": UNARY,
    "allgather": UNARY,
    "reduce_scatter": UNARY,
    "alltoall": UNARY,
    "broadcast": "input x : {t}[6, 8]\n output y = broadcast(x, root = 1)",
    "ring_shift": UNARY,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", default="macoc")
    args = parser.parse_args()
    print("| op | " + " | ".join(DTYPES) + " | mixed floats |")
    print("|---|" + "---|" * (len(DTYPES) + 1))

    def compiles(op, body):
        text = f"graph probe(world = 2) {{\n {body}\n}}\n"
        ran = subprocess.run([args.macoc, "-", "--target=cpu", "--emit=program", "-o", "/dev/null"], input=text, text=True, capture_output=True,
                             check=False)
        return ran.returncode == 0

    for op, body in OPS.items():
        cells = ["yes" if compiles(op, body.format(op=op, t=t)) else "-" for t in DTYPES]
        first, second = body.find("{t}"), body.rfind("{t}")
        mixed = "-"
        if first != second:
            text = body.replace("{op}", op)
            at = text.find("{t}")
            mixed = "yes" if compiles(op, text[:at] + "bf16" + text[at + 3:].replace("{t}", "f32")) else "-"
        elif op not in ("cast",):
            text = body.format(op=op, t="bf16")
            mixed = "yes" if compiles(op, text.replace(")", ", dtype = f32)", 1)) else "-"
        print(f"| `{op}` | " + " | ".join(cells) + f" | {mixed} |")


if __name__ == "__main__":
    main()
