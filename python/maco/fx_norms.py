"""Norms among traced ops, forward and backward.

MACO's norms give no deviations, which the backward pass needs: ops beside them do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from . import fx_match
from .dtypes import DType
from .fx_lower import (
    FLOATS,
    Dense,
    Lowering,
    Number,
    Operand,
    Ref,
    Shape,
    Unsupported,
    common_of,
    divided,
    extents,
    lowers,
    operand_of,
    product,
    result_of,
    static,
)
from .fx_pointwise import binary, unary, unexpanded
from .fx_rows import reduced, used_results
from .graph import Value

aten = torch.ops.aten
F32 = DType.f32
# Not every torch has them.
_FUSED = [aten._fused_rms_norm.default] if hasattr(aten, "_fused_rms_norm") else []
_FUSED_BACKWARD = [aten._fused_rms_norm_backward.default] if hasattr(aten, "_fused_rms_norm_backward") else []


def _affine(lo: Lowering, arg: Any, width: int, number: float) -> Value:
    """A weight or bias of a norm, [width]."""
    if arg is None:
        return lo.shaped(Number(number, (width,), DType.f32), (width,))
    ref = lo.ref(arg)
    if ref.dtype not in FLOATS:
        raise Unsupported(f"a norm with a weight of {ref.dtype}")
    return lo.shaped(unexpanded(ref), (width,))


@lowers(aten.native_layer_norm.default, aten.layer_norm.default)
def _layer_norm(lo: Lowering, node: Node) -> Any:
    whole = node.target is aten.native_layer_norm.default
    shape, dtype = result_of(node, 0 if whole else None)
    sizes = extents(node.args[1])  # type: ignore[arg-type]
    static(sizes)
    width = product(sizes)
    x = lo.ref(node.args[0])
    if x.dtype not in FLOATS:
        raise Unsupported(f"a norm of {x.dtype}")
    eps = float(operand_of(node, 4, "eps", 1e-5))
    found = lo.dense(x)
    form = found.form if found.form[-1] == width else lo.matrix(x, width)
    weight = _affine(lo, operand_of(node, 2, "weight"), width, 1.0)  # type: ignore[arg-type]
    bias = _affine(lo, operand_of(node, 3, "bias"), width, 0.0)  # type: ignore[arg-type]
    made = lo.made(lo.graph.layernorm(lo.shaped(x, form), weight, bias, eps=eps, **common_of(lo, dtype)), form, shape, dtype)
    if not whole:
        return made
    if not used_results(node) - {0}:
        return made, None, None
    mean, inverse = _statistics(lo, node, x, width, eps)
    return made, _given_as(lo, mean, node, 1), _given_as(lo, inverse, node, 2)


def rms_norm(lo: Lowering, x: Ref, weight: Any, width: int, eps: float, shape: Shape, dtype: DType) -> Dense:
    """A norm by the root mean square of `width` columns."""
    if x.dtype not in FLOATS:
        raise Unsupported(f"a norm of {x.dtype}")
    found = lo.dense(x)
    form = found.form if found.form[-1] == width else lo.matrix(x, width)
    value = lo.graph.rmsnorm(lo.shaped(x, form), _affine(lo, weight, width, 1.0), eps=eps, **common_of(lo, dtype))
    return lo.made(value, form, shape, dtype)


@lowers(*_FUSED, aten.rms_norm.default)
def _rms_norm(lo: Lowering, node: Node) -> Any:
    whole = node.target in _FUSED
    shape, dtype = result_of(node, 0 if whole else None)
    sizes = extents(node.args[1])  # type: ignore[arg-type]
    static(sizes)
    x = lo.ref(node.args[0])
    eps = operand_of(node, 3, "eps")
    # torch takes the epsilon of the type it computes in.
    eps = torch.finfo(torch.float32).eps if eps is None else float(eps)
    made = rms_norm(lo, x, operand_of(node, 2, "weight"), product(sizes), eps, shape, dtype)  # type: ignore[arg-type]
    if not whole:
        return made
    if not used_results(node) - {0}:
        return made, None
    width = product(sizes)
    inverse = inverse_rms(lo, _flat(lo, x, divided(product(x.shape), width), width), eps, node)
    return made, _given_as(lo, inverse, node, 1)


@lowers(fx_match.rms_norm)
def _matched_norm(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, weight, eps, _ = node.args
    static(shape[-1:])
    return rms_norm(lo, lo.ref(x), weight, int(shape[-1]), float(eps), shape, dtype)  # type: ignore[arg-type,call-overload]


# ---- deviations, and the backward pass -------------------------------------------------------------------------------------------------


def _flat(lo: Lowering, ref: Ref, rows: Any, width: Any) -> Dense:
    """The elements as rows."""
    return lo.dense(ref).viewed((rows, width))


def inverse_rms(lo: Lowering, x: Dense, eps: float, node: Node) -> Dense:
    """1 / sqrt(mean(x^2) + eps) of each row of x[rows, width], as f32[rows, 1]."""
    name, lo.name = lo.name, ""
    kept = (x.shape[0], 1)
    square = reduced(lo, "mean", _op(lo, "mul", x, x, x.shape), [1], kept, F32, node)
    found = lo.dense(unary(lo, "rsqrt", _op(lo, "add", square, eps, kept), kept, F32))
    lo.name = name
    return found


def _op(lo: Lowering, kind: str, x: Operand, y: Operand, shape: Shape, out: DType = F32) -> Dense:
    return lo.dense(binary(lo, kind, x, y, shape, F32, out))


def _statistics(lo: Lowering, node: Node, x: Ref, width: Any, eps: float) -> tuple[Dense, Dense]:
    """Mean and inverse deviation of each row."""
    rows = divided(product(x.shape), width)
    flat = _flat(lo, x, rows, width)
    mean = reduced(lo, "mean", flat, [1], (rows, 1), F32, node)
    return mean, inverse_rms(lo, _op(lo, "sub", flat, mean, (rows, width)), eps, node)


def _given_as(lo: Lowering, ref: Dense, node: Node, index: int) -> Ref:
    shape, dtype = result_of(node, index)
    return ref.viewed(shape) if ref.dtype is dtype else lo.dense(unary(lo, "cast", ref, ref.shape, dtype)).viewed(shape)


@lowers(fx_match.inverse_rms)
def _matched_inverse(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, eps = lo.ref(node.args[0]), float(node.args[1])  # type: ignore[arg-type]
    width = x.shape[-1]
    found = inverse_rms(lo, _flat(lo, x, divided(product(x.shape), width), width), eps, node)
    return found.viewed(shape) if dtype is F32 else lo.dense(unary(lo, "cast", found, found.shape, dtype)).viewed(shape)


@lowers(aten.native_layer_norm_backward.default)
def _layer_norm_backward(lo: Lowering, node: Node) -> Any:
    grad, x, sizes, mean, inverse, weight, _, mask = node.args
    return _norm_backward(lo, node, grad, x, sizes, mean, inverse, weight, mask)


@lowers(*_FUSED_BACKWARD)
def _rms_norm_backward(lo: Lowering, node: Node) -> Any:
    grad, x, sizes, inverse, weight, mask = node.args
    return _norm_backward(lo, node, grad, x, sizes, None, inverse, weight, (*mask, False))[:2]  # type: ignore[misc]


def _norm_backward(lo: Lowering, node: Node, grad: Any, x: Any, sizes: Any, mean: Any, inverse: Any, weight: Any, mask: Any) -> Any:
    name, lo.name = lo.name, ""
    given, operand = lo.ref(grad), lo.ref(x)
    if operand.dtype not in FLOATS or given.dtype not in FLOATS:
        raise Unsupported(f"a norm of {operand.dtype}")
    width = product(extents(sizes))
    rows = divided(product(operand.shape), width)
    static([rows, width], "the gradient of a norm")
    shape = (rows, width)
    flat, above = _flat(lo, operand, rows, width), _flat(lo, given, rows, width)
    deviation = _flat(lo, lo.ref(inverse), rows, 1)
    centred = flat if mean is None else _op(lo, "sub", flat, _flat(lo, lo.ref(mean), rows, 1), shape)
    normed = _op(lo, "mul", centred, deviation, shape)
    scaled: Ref = above
    if weight is not None:
        scaled = _op(lo, "mul", above, lo.dense(unexpanded(lo.ref(weight))).viewed((width,)), shape)
    found: list[Any] = [None, None, None]
    if mask[0]:
        along = reduced(lo, "mean", _op(lo, "mul", scaled, normed, shape), [1], (rows, 1), F32, node)
        less: Ref = scaled
        if mean is not None:
            less = _op(lo, "sub", less, reduced(lo, "mean", lo.dense(scaled), [1], (rows, 1), F32, node), shape)
        less = _op(lo, "sub", less, _op(lo, "mul", normed, along, shape), shape)
        lo.name = name
        result, dtype = result_of(node, 0)
        found[0] = _op(lo, "mul", less, deviation, shape, dtype).viewed(result)
        lo.name = ""
    for i, terms in ((1, normed), (2, None)):
        if mask[i] and node.meta["val"][i] is not None:
            result, dtype = result_of(node, i)
            each = above if terms is None else _op(lo, "mul", above, terms, shape)
            found[i] = reduced(lo, "sum", each, [0], (width,), dtype, node).viewed(result)
    return tuple(found)
