"""Computes the whole layer with NumPy, on one rank and in float64, and compares what MACO's ranks wrote; status 1 if they differ."""
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file

WORLD = 2
folder = pathlib.Path("build/first_layer")
layer = {name: values.astype(np.float64) for name, values in load_file(folder / "layer.safetensors").items()}

x = layer["x"]
n = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5) * layer["norm"]
gate, up = n @ layer["w_gate"].T, n @ layer["w_up"].T
y = x + (gate / (1 + np.exp(-gate)) * up) @ layer["w_down"].T

differs = False
for rank in range(WORLD):
    got = load_file(folder / f"out.{rank}.safetensors")["y"].astype(np.float64)
    error = np.linalg.norm(got - y) / np.linalg.norm(y)
    right = error < 0.002
    differs |= not right
    print(f"y on rank {rank}: {'as NumPy says' if right else 'differs from NumPy'}, relative error {error:.5f} of 0.002")
sys.exit(differs)
