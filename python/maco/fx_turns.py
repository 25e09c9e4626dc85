"""Rotary embeddings, as `fx_rotary` finds them, in MACO's graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.fx import Node

from .dtypes import DType
from .fx_lower import FLOATS, Lowering, Permuted, Ref, Unsupported, common_of, lowers, product, result_of, static
from .fx_match import rotary
from .fx_views import permuted, straight
from .graph import Value


@lowers(rotary)
def _rotary(lo: Lowering, node: Node) -> Any:
    """Rows of MACO's are the axes up to the last one that angles vary along, in the order in which x lies in memory."""
    shape, dtype = result_of(node)
    x, interleaved, back = lo.ref(node.args[0]), bool(node.args[3]), bool(node.args[4])
    cosines, sines = lo.ref(node.args[1]), lo.ref(node.args[2])
    numbers, varies = (node.args[6], node.args[7]) if len(node.args) > 6 else (None, None)
    rank, size = len(shape), shape[-1]
    if x.dtype not in FLOATS or cosines.dtype not in FLOATS or cosines.dtype is not sines.dtype:
        raise Unsupported(f"rotary embeddings of {x.dtype} by {cosines.dtype} and {sines.dtype}")
    if varies is None:
        places = (*(1,) * (rank - len(cosines.shape)), *cosines.shape[:-1])
        varying = [i for i, extent in enumerate(places) if extent != 1]
    else:
        varying = [i for i, one in enumerate(varies) if one]  # type: ignore[arg-type]
    order = _in_memory(x)
    ahead = max((order.index(i) + 1 for i in varying), default=0)
    rows = product([shape[i] for i in order[:ahead]])
    width = product([shape[i] for i in order[ahead:]])
    static([width, size], "a rotary embedding: its heads")
    matrix = lo.shaped(permuted(x, order, node), (rows, width))
    columns = cosines.shape[-1]
    count = cosines.shape[0] if numbers is not None else product(cosines.shape[:-1])
    if numbers is None and varies is not None:
        # The op reads the first rows of whole tables.
        whole = [getattr(one, "prefix", None) for one in map(straight, (cosines, sines))]
        if whole[0] is not None and whole[1] is not None and whole[0][0].shape == whole[1][0].shape and whole[0][0].shape[-1] == columns:
            cosines, sines = whole[0][0], whole[1][0]
            count = product(cosines.shape[:-1])
    tables = [lo.shaped(one, (count, columns)) for one in (cosines, sines)]
    if back:
        tables[1] = lo.graph.mul(tables[1], value=-1)
    attributes: dict[str, Any] = {"head_dim": size, "interleaved": interleaved}
    # Which angles each row has: the first ones in their order, those of one row number, or of several.
    in_order = [i for i in order[:ahead] if shape[i] != 1] == [i for i in varying if shape[i] != 1]
    repeated = None if in_order else _repeated(lo, shape, order[:ahead], varying)
    positions: Value | None = None
    if numbers is None:
        if repeated is None:
            attributes["position"] = 0
        positions = repeated
    elif rows == 1 and numbers not in lo.refs:
        attributes["position"] = lo.outside(numbers, ("position", count))  # type: ignore[arg-type]
    else:
        known: Any = lo.refs.get(numbers)  # type: ignore[arg-type]
        if not (isinstance(known, Ref) and known.dtype is DType.i32):
            known = lo.outside(numbers, ("index", count))  # type: ignore[arg-type]
        found = product(known.shape)
        positions = lo.shaped(known, (found,))
        if repeated is not None:
            tables = [lo.graph.embedding(one, positions) for one in tables]
            positions = repeated
    value = lo.graph.rope(matrix, positions, cosines=tables[0], sines=tables[1], **attributes, **common_of(lo, dtype))
    made = lo.made(value, (rows, width), tuple(shape[i] for i in order), dtype)
    return permuted(made, tuple(order.index(i) for i in range(rank)), node)


def _in_memory(x: Ref) -> tuple[int, ...]:
    """x's axes in the order in which they lie in memory, if the last one comes last."""
    own = tuple(range(len(x.shape)))
    if not isinstance(x, Permuted) or x.perm[-1] != len(own) - 1:
        return own
    return tuple(x.perm.index(i) for i in own)


def _repeated(lo: Lowering, shape: tuple[Any, ...], axes: tuple[int, ...], varying: list[int]) -> Value:
    """For each place along `axes`, its number among those along `varying`."""
    static([shape[i] for i in axes], "a rotary embedding whose angles are those of several batches")
    extents = tuple(int(shape[i]) for i in axes)
    kept = tuple(i in varying for i in axes)
    total = int(product(extents))  # type: ignore[arg-type]
    return lo.constant(("places", extents, kept), DType.i32, (total,), partial(_places, extents, kept)).value


def _places(extents: tuple[int, ...], kept: tuple[bool, ...], device: Any) -> torch.Tensor:
    of = [extent if keep else 1 for extent, keep in zip(extents, kept, strict=True)]
    count = 1
    for extent in of:
        count *= extent
    return torch.arange(count, device=device).reshape(of).expand(extents).reshape(-1)
