"""Comparisons, truth values and choices among traced ops. A truth value is a u8, 0 or 1."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from .dtypes import DType
from .fx_lower import (
    DTYPES,
    FLOATS,
    Expanded,
    Lowering,
    Number,
    Operand,
    Ref,
    Shape,
    Unsupported,
    common_of,
    lowers,
    operand_of,
    result_of,
)
from .fx_pointwise import binary, converted, number_of, unary, unexpanded
from .fx_rows import reduced

aten = torch.ops.aten
U8, F32 = DType.u8, DType.f32


def value_of(arg: Any) -> Any:
    """A traced tensor, or a number."""
    return arg.meta["val"] if isinstance(arg, Node) else arg


def compared_as(x: Any, y: Any) -> torch.dtype:
    """The dtype in which torch compares two operands."""
    return torch.result_type(value_of(x), value_of(y))


@lowers(
    aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar, aten.lt.Tensor, aten.lt.Scalar, aten.le.Tensor, aten.le.Scalar,
    aten.gt.Tensor, aten.gt.Scalar, aten.ge.Tensor, aten.ge.Scalar,
)  # fmt: skip
def _compare(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    kind = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    common = compared_as(node.args[0], node.args[1])
    operands = [_number_as(one, common) for one in node.args[:2]]
    within = {torch.bool: U8, torch.int64: DType.i32}.get(common) or DTYPES.get(common)
    if within is None:
        raise Unsupported(f"a comparison in {str(common).removeprefix('torch.')}")
    x, y = (lo.operand(one) for one in operands)
    return binary(lo, kind, x, y, shape, within, U8)


def _number_as(arg: Any, common: torch.dtype) -> Any:
    """A number as torch compares it: rounded to the dtype."""
    if isinstance(arg, Node) or not isinstance(arg, float) or not math.isfinite(arg) or common not in (torch.float16, torch.bfloat16):
        return arg
    with _disable_current_modes():
        return float(torch.tensor(arg, dtype=common))


@lowers(aten.isnan.default)
def _isnan(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x = lo.dense(lo.ref(node.args[0]))
    return binary(lo, "ne", x, x, shape, x.dtype, U8)


# ---- truth values ----------------------------------------------------------------------------------------------------------------------


def truth(lo: Lowering, arg: Any) -> Ref:
    """Whether elements of an operand aren't 0."""
    ref = lo.ref(arg)
    if value_of(arg).dtype is torch.bool:
        return ref
    name, lo.name = lo.name, ""
    found = binary(lo, "ne", ref, 0, ref.shape, ref.dtype, U8)
    lo.name = name
    return found


def inverted(lo: Lowering, ref: Ref) -> Ref:
    return binary(lo, "eq", ref, 0, ref.shape, U8, U8)


@lowers(aten.logical_not.default, aten.bitwise_not.default)
def _not(lo: Lowering, node: Node) -> Any:
    return inverted(lo, truth(lo, _of_truths(node)[0]))


@lowers(aten.logical_and.default, aten.bitwise_and.Tensor, aten.logical_or.default, aten.bitwise_or.Tensor)
def _and(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x, y = (truth(lo, one) for one in _of_truths(node))
    both = node.target in (aten.logical_and.default, aten.bitwise_and.Tensor)
    return choose(lo, x, y, 0, shape, U8) if both else choose(lo, x, x, y, shape, U8)


@lowers(aten.logical_xor.default, aten.bitwise_xor.Tensor)
def _xor(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x, y = (truth(lo, one) for one in _of_truths(node))
    return binary(lo, "ne", x, y, shape, U8, U8)


def _of_truths(node: Node) -> tuple[Any, ...]:
    """The operands; of ops on bits those of truth values only."""
    if node.meta["val"].dtype is not torch.bool:
        raise Unsupported("bits of integers")
    if not all(isinstance(one, Node) for one in node.args):
        raise Unsupported("a truth value that is no tensor")
    return tuple(node.args)


@lowers(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
def _any(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    every = node.target.overloadpacket is aten.all  # type: ignore[union-attr]
    x, axes = truth(lo, node.args[0]), operand_of(node, 1, "dim")
    axes = list(range(len(x.shape))) if axes is None else [axes] if isinstance(axes, int) else list(axes)
    if not x.shape:
        return lo.dense(x)
    name, lo.name = lo.name, ""
    found = reduced(lo, "max", inverted(lo, x) if every else x, axes, shape, U8, node)
    lo.name = name
    return inverted(lo, found) if every else found


# ---- choices ---------------------------------------------------------------------------------------------------------------------------


def choose(lo: Lowering, condition: Ref, x: Operand, y: Operand, shape: Shape, dtype: DType) -> Ref:
    """x where the condition, a u8, isn't 0, else y."""
    name, lo.name = lo.name, ""
    x, y = (_plain(converted(lo, one, dtype) if isinstance(one, Ref) else one) for one in (x, y))
    if condition.shape != shape:
        condition = Expanded(condition, shape, getattr(condition, "node", None))  # type: ignore[arg-type]
    if not isinstance(x, Ref) and not math.isfinite(x):
        x = _everywhere(lo, condition, x, dtype)
    if not isinstance(y, Ref) and not math.isfinite(y):
        condition = inverted(lo, condition)
        x, y = _everywhere(lo, condition, y, dtype), x
    if not isinstance(x, Ref):
        if isinstance(y, Ref):
            condition, x, y = inverted(lo, condition), y, x
        else:
            x = _everywhere(lo, condition, x, dtype)
    first = lo.dense(condition)
    operands = [
        one if one.shape == shape else Expanded(one, shape, getattr(one, "node", None))  # type: ignore[arg-type]
        for one in (x, y)
        if isinstance(one, Ref)
    ]
    found = [lo.dense(one) for one in operands]
    form = next((one.form for one in (*found, first) if all(one.form in other.forms for other in (*found, first))), found[0].form)
    lo.name = name
    other = lo.shaped(found[1], form) if isinstance(y, Ref) else number_of(y, dtype)
    value = lo.graph.where(lo.shaped(first, form), lo.shaped(found[0], form), other, **common_of(lo, dtype))
    return lo.made(value, form, shape, dtype)


def _plain(x: Operand) -> Operand:
    """A number as a number, an infinite one too."""
    bare = unexpanded(x) if isinstance(x, Ref) else x
    if isinstance(bare, Number):
        bare = bare.number
    if not isinstance(bare, Ref) and math.isnan(bare):
        raise Unsupported("the number NaN: a graph of MACO's can't have it")
    return x if isinstance(bare, Ref) else bare


def _everywhere(lo: Lowering, condition: Ref, number: float, dtype: DType) -> Ref:
    """A tensor of the condition's shape that has the number, at least where the condition holds. (It fuses, which a constant wouldn't.)"""
    shape = condition.shape
    if math.isfinite(number):
        within = F32 if dtype in FLOATS else DType.i32
        return binary(lo, "add", binary(lo, "mul", condition, 0, shape, within), number, shape, within, dtype)
    if dtype not in FLOATS:
        raise Unsupported(f"the number {number} with {dtype}")
    large = binary(lo, "mul", condition, math.copysign(3e38, number), shape, F32)
    return binary(lo, "mul", large, 3e38, shape, F32)


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def _where(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    return choose(lo, truth(lo, node.args[0]), lo.operand(node.args[1]), lo.operand(node.args[2]), shape, dtype)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    return choose(lo, truth(lo, node.args[1]), lo.operand(node.args[2]), lo.ref(node.args[0]), shape, dtype)


@lowers(aten.sign.default, aten.sgn.default)
def _sign(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.dense(lo.ref(node.args[0]))
    if dtype is U8:
        return converted(lo, binary(lo, "ne", x, 0, shape, U8, U8), U8)
    name, lo.name = lo.name, ""
    above, below = (binary(lo, kind, x, 0, shape, x.dtype, dtype) for kind in ("gt", "lt"))
    lo.name = name
    return binary(lo, "sub", above, below, shape, dtype)


def _where_compared(lo: Lowering, x: Ref, kind: str, bound: float, shape: Shape) -> Ref:
    name, lo.name = lo.name, ""
    found = binary(lo, kind, x, bound, shape, x.dtype, U8)
    lo.name = name
    return found


def _scaled(lo: Lowering, x: Ref, by: float, shape: Shape, dtype: DType) -> Ref:
    name, lo.name = lo.name, ""
    found = binary(lo, "mul", x, by, shape, dtype, F32)
    lo.name = name
    return found


def _floats(dtype: DType) -> DType:
    if dtype not in FLOATS:
        raise Unsupported(f"an activation of {dtype}")
    return dtype


@lowers(aten.leaky_relu.default)
def _leaky_relu(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, slope = lo.dense(lo.ref(node.args[0])), operand_of(node, 1, "negative_slope", 0.01)
    return choose(lo, _where_compared(lo, x, "gt", 0, shape), x, _scaled(lo, x, slope, shape, _floats(dtype)), shape, dtype)


@lowers(aten.leaky_relu_backward.default)
def _leaky_relu_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    grad, x = lo.dense(lo.ref(node.args[0])), lo.ref(node.args[1])
    low = _scaled(lo, grad, node.args[2], shape, _floats(dtype))  # type: ignore[arg-type]
    return choose(lo, _where_compared(lo, x, "gt", 0, shape), grad, low, shape, dtype)


@lowers(aten.threshold_backward.default)
def _threshold_backward(lo: Lowering, node: Node) -> Any:
    # A NaN isn't below the threshold, and its gradient goes through.
    shape, dtype = result_of(node)
    below = _where_compared(lo, lo.ref(node.args[1]), "le", node.args[2], shape)  # type: ignore[arg-type]
    return choose(lo, below, 0, lo.ref(node.args[0]), shape, _floats(dtype))


@lowers(aten.hardtanh_backward.default)
def _hardtanh_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.dense(lo.ref(node.args[1]))
    above = _where_compared(lo, x, "le", node.args[2], shape)  # type: ignore[arg-type]
    below = _where_compared(lo, x, "ge", node.args[3], shape)  # type: ignore[arg-type]
    name, lo.name = lo.name, ""
    outside = choose(lo, above, above, below, shape, U8)
    lo.name = name
    return choose(lo, outside, 0, lo.ref(node.args[0]), shape, _floats(dtype))


# ---- logarithms of softmax -------------------------------------------------------------------------------------------------------------


@lowers(aten._log_softmax.default, aten.log_softmax.int)
def _log_softmax(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    if x.dtype not in FLOATS:
        raise Unsupported(f"log_softmax of {x.dtype}")
    if not shape:
        raise Unsupported("log_softmax of a tensor without axes")
    axis = int(node.args[1]) % len(shape)  # type: ignore[arg-type]
    kept = tuple(1 if i == axis else one for i, one in enumerate(shape))
    name, lo.name = lo.name, ""
    less = binary(lo, "sub", x, reduced(lo, "max", x, [axis], kept, F32, node), shape, F32)
    total = reduced(lo, "sum", unary(lo, "exp", less, shape, F32), [axis], kept, F32, node)
    logarithm = unary(lo, "log", total, kept, F32)
    lo.name = name
    return binary(lo, "sub", less, logarithm, shape, F32, dtype)


@lowers(aten._log_softmax_backward_data.default)
def _log_softmax_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    grad, y = lo.ref(node.args[0]), lo.ref(node.args[1])
    if not shape:
        raise Unsupported("log_softmax of a tensor without axes")
    axis = int(node.args[2]) % len(shape)  # type: ignore[arg-type]
    kept = tuple(1 if i == axis else one for i, one in enumerate(shape))
    name, lo.name = lo.name, ""
    total = reduced(lo, "sum", grad, [axis], kept, F32, node)
    share = binary(lo, "mul", unary(lo, "exp", y, shape, F32), total, shape, F32)
    lo.name = name
    return binary(lo, "sub", grad, share, shape, F32, dtype)
