"""Writes the weights of a layer as a checkpoint would have them, and the part of them that each rank has."""
import pathlib

import numpy as np
from safetensors.numpy import save_file

WORLD, TOKENS, COLUMNS, HIDDEN = 2, 16, 512, 1024
folder = pathlib.Path("build/first_layer")
folder.mkdir(parents=True, exist_ok=True)

# The whole layer. A product's weights are [outputs, inputs], as PyTorch keeps them.
random = np.random.default_rng(1)
layer = {
    "x": random.normal(0, 1, (TOKENS, COLUMNS)),
    "norm": random.normal(1, 0.1, (COLUMNS,)),
    "w_gate": random.normal(0, COLUMNS**-0.5, (HIDDEN, COLUMNS)),
    "w_up": random.normal(0, COLUMNS**-0.5, (HIDDEN, COLUMNS)),
    "w_down": random.normal(0, HIDDEN**-0.5, (COLUMNS, HIDDEN)),
}
layer = {name: values.astype(np.float16) for name, values in layer.items()}
save_file(layer, folder / "layer.safetensors")

# Rank r has the r-th part of the hidden columns: outputs of gate and up, inputs of down. x and norm are whole everywhere.
for rank in range(WORLD):
    part = slice(rank * HIDDEN // WORLD, (rank + 1) * HIDDEN // WORLD)
    mine = dict(layer, w_gate=layer["w_gate"][part], w_up=layer["w_up"][part], w_down=layer["w_down"][:, part])
    save_file({name: np.ascontiguousarray(values) for name, values in mine.items()}, folder / f"in.{rank}.safetensors")
    print(f"in.{rank}.safetensors:", ", ".join(f"{name}{list(values.shape)}" for name, values in mine.items()))
