#!/usr/bin/env python3
"""Prints the worst relative error of each elementwise function, over all exponents of f32 and 20,001 values between -100 and 100, against
long double, where the result is a normal number.

  function_errors.py --maco-run build/bin/maco-run --device cpu
"""

import argparse
import math
import os
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

OPS = ["exp", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh"]


def expected(x):
    d = x.astype(np.longdouble)

    def logistic(u):
        e = np.exp(-np.abs(u))
        return np.where(u < 0, e, 1) / (1 + e)

    tanh_argument = np.sqrt(2 / np.longdouble(np.pi)) * (d + np.longdouble(0.044715) * d**3)
    gelu = np.array([0.5 * v * math.erfc(-v / 2**0.5) for v in x.astype(float)])
    return dict(zip(OPS, [np.exp(d), np.tanh(d), logistic(d), d * logistic(d), gelu, d * logistic(2 * tanh_argument)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    mantissas = np.float32([1, 1.1, 1.3, 1.5, 1.7, 1.9])
    x = np.concatenate([s * np.ldexp(mantissas, e) for s in (1, -1) for e in range(-126, 128)]
                       + [np.linspace(-100, 100, 20001)]).astype(np.float32)
    lines = [f"  output y_{op} = {op.split('_')[0]}(x{', approximate = tanh' if '_' in op else ''})" for op in OPS]
    text = "\n".join([f"graph functions {{\n  input x : f32[{len(x)}]", *lines, "}\n"])
    with tempfile.TemporaryDirectory() as folder:
        graph, given, made = (os.path.join(folder, name) for name in ("g.maco", "x.safetensors", "y.safetensors"))
        with open(graph, "w", encoding="utf-8") as file:
            file.write(text)
        save_file({"x": x}, given)
        subprocess.run([args.maco_run, graph, "--device", args.device, "--inputs", given, "--outputs", made], check=True)
        y = load_file(made)
    with np.errstate(all="ignore"):
        for op, right in expected(x).items():
            normal = (np.abs(right) >= 2.0**-126) & (np.abs(right) < 2.0**127.99)
            error = np.abs(y["y_" + op].astype(np.longdouble) - right)[normal] / np.abs(right)[normal]
            worst = int(np.argmax(error))
            print(f"{op:10} worst relative error {error[worst]:.3g} at x = {x[normal][worst]:g}")


if __name__ == "__main__":
    main()
