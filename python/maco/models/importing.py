"""A checkpoint of Hugging Face's as graphs and weights.json, which the library makes."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _native
from ..dtypes import DType, DTypeLike, as_dtype
from ..errors import Error
from ..graph import Graph
from ..words import integer, suggestion

__all__ = ["KINDS", "Model", "import_model"]

KINDS = ("decode", "prefill", "verify")
DTYPES = (DType.f32, DType.f16, DType.bf16)


@dataclass(frozen=True)
class Model:
    """A checkpoint as graphs (docs/models.md).

    `graphs` are their texts by kind: "decode" appends one token, "prefill" up to a chunk of them, "verify" a few and gives the logits of
    all. `weights` is the text of weights.json: which parts of which tensors of the checkpoint each param is. `folder` is the checkpoint's.
    """

    folder: str
    graphs: Mapping[str, str]
    weights: str
    about: Mapping[str, Any] = field(repr=False, compare=False)
    """weights.json, read: "architecture", "world", "dtype", "max_seq", "chunk", "verify_rows", "vocabulary", "eos" and more."""

    def graph(self, kind: str) -> Graph:
        """One of the graphs. Raises `maco.Error` for another word."""
        if kind not in self.graphs:
            raise Error(f"the model has no graph '{kind}'; {suggestion(kind, self.graphs)}")
        return Graph.parse(self.graphs[kind], f"{kind}.maco")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes KIND.maco for each graph, and weights.json, into a folder, which is made if it isn't there."""
        to = Path(folder)
        try:
            to.mkdir(parents=True, exist_ok=True)
            for kind, text in self.graphs.items():
                (to / f"{kind}.maco").write_text(text, encoding="utf-8")
            (to / "weights.json").write_text(self.weights, encoding="utf-8")
        except OSError as error:
            raise Error(f"'{os.fspath(folder)}' can't be written: {error}") from error


def checkpoint_folder(folder: str | os.PathLike[str]) -> str:
    """The folder, if it can be a checkpoint's. Raises `maco.Error` if it can't, and TypeError for what is no path."""
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"a checkpoint is a folder's path, not a {type(folder).__name__}")
    path = os.fspath(folder)
    if not os.path.isdir(path):
        raise Error(
            f"there is no folder '{path}': a checkpoint is the folder with config.json and the .safetensors files, downloaded before"
        )
    if not os.path.isfile(os.path.join(path, "config.json")):
        raise Error(f"'{path}' is no checkpoint: it has no config.json")
    return path


def element_type(dtype: DTypeLike | None) -> DType | None:
    """The dtype, if a model may be computed in it; None for None. Raises `maco.Error` for others."""
    if dtype is None:
        return None
    found = as_dtype(dtype)
    if found not in DTYPES:
        raise Error(f"a model is computed in {', '.join(one.name for one in DTYPES)}, not in {found.name}")
    return found


def import_model(
    folder: str | os.PathLike[str],
    *,
    tp: int = 1,
    max_seq: int | None = None,
    dtype: DTypeLike | None = None,
    chunk: int | None = None,
    verify_rows: int | None = None,
    architecture: str | os.PathLike[str] | None = None,
) -> Model:
    """Reads a checkpoint's configuration and the headers of its files, and gives its graphs for `tp` ranks, and which weights they take.

    `max_seq`: rows of the caches. `dtype`: f32, f16 or bf16; the checkpoint's if it isn't given. `chunk`: the most rows of a launch that
    reads a prompt, `verify_rows`: the rows of the graph "verify". `architecture`: a file that describes one which MACO doesn't know.
    Raises `maco.Error` for what can't be imported, and says why.
    """
    path = checkpoint_folder(folder)
    kind = element_type(dtype)
    options = _native.ModelOptions(
        size=ctypes.sizeof(_native.ModelOptions),
        world=integer(tp, "tp", 1),
        has_dtype=kind is not None,
        dtype=0 if kind is None else list(DType).index(kind),
        max_seq=0 if max_seq is None else integer(max_seq, "max_seq", 1),
        chunk=0 if chunk is None else integer(chunk, "chunk", 1),
        verify_rows=0 if verify_rows is None else integer(verify_rows, "verify_rows", 1),
        architecture=None if architecture is None else os.fsencode(architecture),
    )

    def work() -> int:
        made: int = _native.call("maco_model_import", os.fsencode(path), ctypes.byref(options))
        return made

    def dispose(late: int) -> None:
        _native.library().maco_model_free(late)

    pointer = _native.interruptible(work, dispose=dispose)
    dll = _native.library()
    try:
        texts = {kind: dll.maco_model_graph(pointer, kind.encode()) for kind in KINDS}
        weights: str = dll.maco_model_weights(pointer).decode()
    finally:
        dll.maco_model_free(pointer)
    return Model(path, {kind: text.decode() for kind, text in texts.items() if text is not None}, weights, json.loads(weights))


Progress = Callable[[str, int, int], None]
"""Told what is being done, and how many bytes of how many that took so far; 0 of 0 where it isn't reading."""
