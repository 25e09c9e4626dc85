"""Elementwise ops, conversions and constants among traced ops."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from .dtypes import DType
from .fx_lower import (
    FLOATS,
    LARGEST_F32,
    LARGEST_I32,
    Dense,
    Expanded,
    Extent,
    Gated,
    Lazy,
    Lowering,
    Number,
    Operand,
    Permuted,
    Ref,
    Scalar,
    Shape,
    Unsupported,
    common_of,
    lowers,
    operand_of,
    product,
    result_of,
)
from .fx_masks import constant
from .graph import Value

aten = torch.ops.aten

# ---- elementwise -----------------------------------------------------------------------------------------------------------------------


def number_of(number: Any, dtype: DType) -> Scalar:
    if isinstance(number, bool):
        number = int(number)
    if not isinstance(number, (int, float)):
        raise Unsupported(f"a number that is known only at run time ({type(number).__name__})")
    if isinstance(number, float) and not math.isfinite(number):
        raise Unsupported(f"the number {number}: a graph of MACO's can't have it")
    if dtype in (DType.i32, DType.u8) and (int(number) != number or abs(number) > LARGEST_I32):
        raise Unsupported(f"the number {number} with {dtype}")
    if dtype in FLOATS and abs(number) > LARGEST_F32:
        raise Unsupported(f"the number {number}, which f32 hasn't")
    return number


COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""What each is with its operands exchanged."""
_OF_INTEGERS = ("relu", "neg", "abs", "clamp")


def computed(dtype: DType) -> DType:
    """The dtype in which elements can be computed with."""
    return DType.i32 if dtype is DType.u8 else dtype


def converted(lo: Lowering, ref: Ref, dtype: DType) -> Ref:
    """An operand that may stand beside a tensor of `dtype`: floats mix, others are cast."""
    if ref.dtype is dtype or (ref.dtype in FLOATS and dtype in FLOATS):
        return ref
    if isinstance(ref, Number):
        return Number(ref.number, ref.shape, dtype)
    if isinstance(ref, Expanded):
        return Expanded(converted(lo, ref.base, dtype), ref.shape, ref.node)
    found = lo.dense(ref)
    name, lo.name = lo.name, ""
    value = lo.graph.cast(found.value, dtype)
    lo.name = name
    return lo.made(value, found.form, ref.shape, dtype)


def unary(lo: Lowering, kind: str, ref: Ref, shape: Shape, dtype: DType, **attributes: Any) -> Ref:
    """An op of one operand. `dtype` is that of the result."""
    if kind not in ("copy", "cast"):
        whole = kind in _OF_INTEGERS
        ref = converted(lo, ref, computed(ref.dtype) if whole else (ref.dtype if ref.dtype in FLOATS else DType.f32))
    if isinstance(ref, Permuted):
        base = unary(lo, kind, ref.base, ref.base.shape, dtype, **attributes)
        return Permuted(base, ref.perm, ref.node)
    found = lo.dense(ref)
    value = getattr(lo.graph, kind)(found.value, **attributes, **common_of(lo, dtype))
    return lo.made(value, found.form, shape, dtype)


def suffix(small: Shape, shape: Shape) -> Shape | None:
    """The axes of `small` without leading ones, if they are the last ones of `shape`."""
    at = 0
    while at < len(small) and small[at] == 1:
        at += 1
    rest = small[at:]
    return rest if rest and rest == shape[len(shape) - len(rest) :] else None


def unexpanded(ref: Ref) -> Ref:
    while isinstance(ref, Expanded):
        ref = ref.base
    return ref


def binary(lo: Lowering, kind: str, x: Operand, y: Operand, shape: Shape, dtype: DType, out: DType | None = None) -> Ref:
    """x op y with torch's broadcasting, computed among operands of `dtype`, and rounded to `out` (`dtype` if it isn't given)."""
    out = out or dtype
    compares = kind in COMPARISONS
    within = dtype if compares else computed(dtype)
    if isinstance(x, Ref):
        x = converted(lo, x, within)
    if isinstance(y, Ref):
        y = converted(lo, y, within)
    x = plain(x)
    y = plain(y)
    if not isinstance(x, Ref) and not isinstance(y, Ref):
        raise Unsupported("an op of two numbers")
    name, lo.name = lo.name, ""
    wide = DType.f32 if dtype in FLOATS else DType.i32

    def turned() -> tuple[str, Operand, Operand]:
        """The op with its operands exchanged."""
        if kind != "sub":
            return COMPARISONS.get(kind, kind), y, x
        return "add", binary(lo, "mul", y, -1, y.shape, within, wide), x  # type: ignore[union-attr]

    if kind in ("div", "pow") and not isinstance(x, Ref):
        x = Number(number_of(x, within), shape, within)
    if not isinstance(x, Ref):
        kind, x, y = turned()
    assert isinstance(x, Ref)
    if kind in ("div", "pow"):
        x = x if x.shape == shape else Expanded(x, shape, getattr(x, "node", None))  # type: ignore[arg-type]
        x = lo.dense(x) if isinstance(x, Expanded) else x
    if isinstance(y, Ref) and x.shape != shape:
        bare = unexpanded(y)
        if y.shape == shape and (bare.shape == shape or product(unexpanded(x).shape) == 1):
            kind, x, y = turned()
    assert isinstance(x, Ref)
    if isinstance(y, Ref) and isinstance(x, Expanded) and unexpanded(y).shape == shape:
        kind, x, y = turned()
    assert isinstance(x, Ref)
    if isinstance(x, Permuted) and x.shape == shape:
        # Elements stay where they are, if both operands lie alike.
        lo.name = name
        if isinstance(y, Permuted) and y.perm == x.perm and y.base.shape == x.base.shape:
            return Permuted(binary(lo, kind, x.base, y.base, x.base.shape, dtype, out), x.perm, x.node)
        if not isinstance(y, Ref) or product(y.shape) == 1:
            one = y if not isinstance(y, Ref) else lo.dense(unexpanded(y)).viewed((1,))
            return Permuted(binary(lo, kind, x.base, one, x.base.shape, dtype, out), x.perm, x.node)
        turned_y = _turned(lo, unexpanded(y), x)
        if turned_y is not None:
            return Permuted(binary(lo, kind, x.base, turned_y, x.base.shape, dtype, out), x.perm, x.node)
        lo.name = ""
    if x.shape != shape:
        x = Expanded(x, shape, getattr(x, "node", None))  # type: ignore[arg-type]
    found = lo.dense(x)
    cut = out is DType.u8 and not compares
    common: dict[str, Any] = {"dtype": computed(out) if cut else out}
    if name and not cut:
        common["name"] = name
    write = getattr(lo.graph, kind)
    form = found.form
    if isinstance(y, Ref):
        form, beside = _beside(lo, found, unexpanded(y), shape)
        value = write(lo.shaped(found, form), beside, **common)
    else:
        value = write(found.value, value=number_of(y, within), **common)
    if cut:
        value = lo.graph.cast(value, out)
    return lo.made(value, form, shape, out)


def _beside(lo: Lowering, x: Dense, y: Ref, shape: Shape) -> tuple[Shape, Value]:
    """The shapes in which x, of the logical `shape`, takes y: as many elements, one for each column, or one."""

    def columns(width: Extent) -> Shape:
        return next((one for one in x.forms if one[-1] == width), None) or lo.matrix(x, width)

    if product(y.shape) == 1:
        return x.form, lo.shaped(y, (1,))
    rest = suffix(y.shape, shape)
    if y.shape == shape or (rest is not None and product(rest) == product(shape)):
        other = lo.dense(y)
        form = other.form if x.form not in other.forms and other.form in x.forms else x.form
        return form, lo.shaped(other, form)
    if rest is not None and isinstance(product(rest), int):
        return columns(product(rest)), lo.shaped(y, (product(rest),))
    # Leading axes are broadcast by the op, if the others have a known size.
    aligned = (1,) * (len(shape) - len(y.shape)) + y.shape
    first = next(i for i, one in enumerate(aligned) if one != 1)
    width = product(shape[first:])
    node: Any = getattr(y, "node", None)
    if not isinstance(width, int):
        return x.form, lo.shaped(Expanded(y, shape, node), x.form)
    wide = lo.shared(y, Expanded(lo.dense(y).viewed(aligned[first:]), shape[first:], node))
    return columns(width), lo.shaped(wide, (width,))


def _turned(lo: Lowering, y: Ref, x: Permuted) -> Ref | None:
    """A small operand as it stands beside x's base; None if that isn't small, or its axes came into another order."""
    aligned = (1,) * (len(x.shape) - len(y.shape)) + y.shape
    axes = [i for i, one in enumerate(aligned) if one != 1]
    places = [x.perm[i] for i in axes]
    if places != sorted(places) or product(y.shape) == product(x.shape):
        return None
    shape: list[Any] = [1] * len(aligned)
    for i, place in zip(axes, places, strict=True):
        shape[place] = aligned[i]
    return lo.dense(y).viewed(tuple(shape))


def plain(x: Operand) -> Operand:
    """Numbers as numbers."""
    bare = unexpanded(x) if isinstance(x, Ref) else x
    return bare.number if isinstance(bare, Number) and math.isfinite(bare.number) else x


def scaled(lo: Lowering, x: Operand, by: float, dtype: DType) -> Operand:
    """x times a number, as it stands in an op with a factor: not rounded."""
    if by == 1:
        return x
    if not isinstance(x, Ref):
        return x * by
    name, lo.name = lo.name, ""
    found = binary(lo, "mul", x, by, x.shape, dtype, DType.f32 if dtype in FLOATS else None)
    lo.name = name
    return found


@lowers(aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar)
def _add(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    packet = node.target.overloadpacket  # type: ignore[union-attr]
    x, y, alpha = lo.operand(node.args[0]), lo.operand(node.args[1]), operand_of(node, 2, "alpha", 1)
    if packet is aten.rsub:
        x, y = y, x
        if alpha != 1:
            x, y = x, scaled(lo, y, alpha, dtype)
    else:
        y = scaled(lo, y, alpha, dtype)
    return binary(lo, "add" if packet is aten.add else "sub", x, y, shape, dtype)


@lowers(aten.mul.Tensor, aten.mul.Scalar)
def _mul(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, y = lo.operand(node.args[0]), lo.operand(node.args[1])
    for gated, other, at in ((x, y, 0), (y, x, 1)):
        if isinstance(gated, Gated) and gated.made is None and isinstance(other, Ref) and dtype in FLOATS:
            source = node.args[at]
            if isinstance(source, Node) and len(source.users) == 1 and gated.shape == shape and unexpanded(other).shape == shape:
                gate, up = lo.dense(gated.gate), lo.dense(unexpanded(other))
                if up.dtype not in FLOATS:
                    continue
                form = gate.form if gate.form in up.forms or up.form not in gate.forms else up.form
                left, right, common = lo.shaped(gate, form), lo.shaped(up, form), common_of(lo, dtype)
                if gated.kind == "gelu":
                    value = lo.graph.geglu(left, right, **gated.attributes, **common)
                else:
                    value = lo.graph.swiglu(left, right, **common)
                return lo.made(value, form, shape, dtype)
    return binary(lo, "mul", x, y, shape, dtype)


@lowers(aten.div.Tensor, aten.div.Scalar)
def _div(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, y = plain(lo.operand(node.args[0])), plain(lo.operand(node.args[1]))
    if isinstance(x, Ref):
        x = converted(lo, x, dtype)
    if isinstance(y, Ref):
        # A product would lose bits of small quotients.
        return inverse(lo, y, shape, dtype) if x == 1 and y.shape == shape else binary(lo, "div", x, y, shape, dtype)
    exact = y != 0 and math.frexp(y)[0] in (0.5, -0.5) and abs(y) < 2.0**120
    return binary(lo, "mul", x, 1.0 / y, shape, dtype) if exact else binary(lo, "div", x, y, shape, dtype)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _rounded_div(lo: Lowering, node: Node) -> Any:
    if node.kwargs.get("rounding_mode") is not None:
        raise Unsupported(f"a quotient that is rounded by '{node.kwargs['rounding_mode']}': MACO has no floor and no trunc")
    return _div(lo, node)


def inverse(lo: Lowering, x: Ref, shape: Shape, dtype: DType) -> Ref:
    """1 / x, rounded once."""
    return unary(lo, "pow", x, shape, dtype, value=-1)


@lowers(aten.reciprocal.default)
def _reciprocal(lo: Lowering, node: Node) -> Any:
    return inverse(lo, lo.ref(node.args[0]), *result_of(node))


@lowers(aten.neg.default)
def _neg(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    return binary(lo, "mul", x, -1, shape, dtype) if dtype is DType.u8 else unary(lo, "neg", x, shape, dtype)


@lowers(aten.maximum.default, aten.minimum.default)
def _maximum(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    kind = "maximum" if node.target is aten.maximum.default else "minimum"
    return binary(lo, kind, lo.operand(node.args[0]), lo.operand(node.args[1]), shape, dtype)


@lowers(aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.hardtanh.default, aten.clamp.Tensor)
def _clamp(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    if node.target is aten.hardtanh.default:
        low, high = operand_of(node, 1, "min_val", -1.0), operand_of(node, 2, "max_val", 1.0)
    else:
        low, high = operand_of(node, 1, "min"), operand_of(node, 2, "max")
    if node.target is aten.clamp_max.default:
        low, high = None, operand_of(node, 1, "max")
    if node.target is aten.clamp_min.default:
        high = None
    x: Ref = lo.ref(node.args[0])
    # The infinities that bound nothing; what others leave is left to torch.
    given = [("maximum", low, -math.inf), ("minimum", high, math.inf)]
    bounds = [(kind, bound) for kind, bound, none in given if bound is not None and not (isinstance(bound, float) and bound == none)]
    if not bounds:
        return unary(lo, "copy", x, shape, dtype)
    numbers = {kind: plain(lo.operand(bound)) for kind, bound in bounds}
    if dtype is not DType.u8 and not any(isinstance(one, Ref) for one in numbers.values()):
        own = {{"maximum": "min", "minimum": "max"}[kind]: number_of(one, dtype) for kind, one in numbers.items()}
        return unary(lo, "clamp", converted(lo, x, dtype), shape, dtype, **own)
    name = lo.name
    for i, (kind, bound) in enumerate(bounds):
        lo.name = name if i == len(bounds) - 1 else ""
        x = binary(lo, kind, x, lo.operand(bound), shape, dtype)
    return x


@lowers(
    aten.relu.default, aten.sigmoid.default, aten.tanh.default, aten.exp.default, aten.log.default, aten.sqrt.default, aten.rsqrt.default,
    aten.sin.default, aten.cos.default, aten.erf.default,
)  # fmt: skip
def _activation(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    kind = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    x = lo.ref(node.args[0])
    if kind == "relu" and dtype is DType.u8:
        return unary(lo, "copy", x, shape, dtype)
    return unary(lo, kind, x, shape, dtype)


@lowers(aten.silu.default, aten.gelu.default)
def _gated(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    kind = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    attributes = {"approximate": operand_of(node, 1, "approximate", "none")} if kind == "gelu" else {}
    x, name = lo.ref(node.args[0]), lo.name

    def make() -> Dense:
        lo.name = name
        return lo.dense(unary(lo, kind, x, shape, dtype, **attributes))

    if x.dtype not in FLOATS:
        raise Unsupported(f"{kind} of {x.dtype}")
    found = Gated(shape, dtype, make, None)  # type: ignore[arg-type]
    found.gate, found.kind, found.attributes = x, kind, attributes
    if len(node.users) != 1 or next(iter(node.users)).target is not aten.mul.Tensor:
        return lo.dense(found)
    return found


@lowers(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow_of(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    if dtype not in FLOATS:
        raise Unsupported(f"a power of {dtype}: MACO has those of floats")
    return binary(lo, "pow", lo.operand(node.args[0]), lo.operand(node.args[1]), shape, dtype)


@lowers(aten.square.default, aten.pow.Tensor_Scalar)
def _pow(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    power = 2 if node.target is aten.square.default else node.args[1]
    x = lo.ref(node.args[0])
    if power == 1:
        return unary(lo, "copy", x, shape, dtype) if x.dtype is dtype else converted(lo, x, dtype)
    if dtype in FLOATS and isinstance(power, (int, float)):
        # As torch: the roots of -0 and of -infinity are those of sqrt.
        root = {0.5: "sqrt", -0.5: "rsqrt"}.get(power)
        return unary(lo, root, x, shape, dtype) if root else unary(lo, "pow", x, shape, dtype, value=number_of(power, dtype))
    if power not in (2, 3, 4):
        raise Unsupported(f"the power {power} of {dtype}: MACO multiplies integers up to the fourth")
    x = lo.dense(converted(lo, x, computed(dtype)))
    name, lo.name = lo.name, name_if(lo.name, power == 2)
    square = binary(lo, "mul", x, x, shape, dtype)
    lo.name = name
    return square if power == 2 else binary(lo, "mul", square, x if power == 3 else square, shape, dtype)


def name_if(name: str, wanted: bool) -> str:
    """The name where it is wanted."""
    return name if wanted else ""


@lowers(aten.abs.default)
def _abs(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    return unary(lo, "copy" if dtype is DType.u8 else "abs", x, shape, dtype)


@lowers(aten.lerp.Scalar)
def _lerp(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, y, weight = lo.ref(node.args[0]), lo.ref(node.args[1]), node.args[2]
    name, lo.name = lo.name, ""
    step = binary(lo, "mul", binary(lo, "sub", y, x, shape, dtype, DType.f32), weight, shape, DType.f32)  # type: ignore[arg-type]
    lo.name = name
    return binary(lo, "add", x, step, shape, dtype)


@lowers(aten.sigmoid_backward.default, aten.tanh_backward.default, aten.silu_backward.default)
def _activation_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    grad, x = lo.ref(node.args[0]), lo.ref(node.args[1])
    name, lo.name = lo.name, ""
    f32 = DType.f32

    def op(kind: str, a: Operand, b: Operand) -> Ref:
        return binary(lo, kind, a, b, shape, f32)

    if node.target is aten.sigmoid_backward.default:
        slope = op("mul", op("sub", 1, x), x)
    elif node.target is aten.tanh_backward.default:
        slope = op("sub", 1, op("mul", x, x))
    else:
        gate = unary(lo, "sigmoid", x, shape, f32)
        slope = op("mul", op("add", op("mul", op("sub", 1, gate), x), 1), gate)
    lo.name = name
    return binary(lo, "mul", grad, slope, shape, dtype)


@lowers(aten.gelu_backward.default)
def _gelu_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    tanh = node.kwargs.get("approximate", "none") == "tanh"
    grad, x = lo.ref(node.args[0]), lo.dense(lo.ref(node.args[1]))
    name, lo.name = lo.name, ""
    f32 = DType.f32

    def op(kind: str, a: Operand, b: Operand) -> Ref:
        return binary(lo, kind, a, b, shape, f32)

    if not tanh:
        # The normal distribution's share below x, and x times its density.
        share = op("mul", op("add", unary(lo, "erf", op("mul", x, math.sqrt(0.5)), shape, f32), 1), 0.5)
        density = unary(lo, "exp", op("mul", op("mul", x, x), -0.5), shape, f32)
        slope = op("add", share, op("mul", op("mul", density, x), 1 / math.sqrt(2 * math.pi)))
        lo.name = name
        return binary(lo, "mul", grad, slope, shape, dtype)
    root, cubic = math.sqrt(2 / math.pi), 0.044715
    square = op("mul", x, x)
    inner = unary(lo, "tanh", op("mul", op("mul", op("add", op("mul", square, cubic), 1), x), root), shape, f32)
    outer = op("mul", op("add", op("mul", square, 3 * cubic * root), root), op("mul", x, 0.5))
    right = op("mul", op("sub", 1, op("mul", inner, inner)), outer)
    whole = op("add", op("mul", op("add", inner, 1), 0.5), right)
    lo.name = name
    return binary(lo, "mul", grad, whole, shape, dtype)


# ---- conversion and copies -------------------------------------------------------------------------------------------------------------


@lowers(aten.clone.default, aten._to_copy.default, torch.ops.prims.convert_element_type.default)
def _copy(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    if node.meta["val"].dtype is torch.bool and node.args[0].meta["val"].dtype is not torch.bool:  # type: ignore[union-attr]
        return binary(lo, "ne", x, 0, shape, x.dtype, DType.u8)
    if x.dtype is dtype:
        return x if isinstance(x, (Permuted, Expanded, Lazy)) else lo.dense(x).viewed(shape)
    if dtype in (DType.f8e4m3, DType.f8e5m2):
        raise Unsupported("a conversion to f8: what is too large becomes the largest number in MACO, and none in torch")
    return unary(lo, "cast", x, shape, dtype)


@lowers(aten.copy.default)
def _copied(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    source = converted(lo, lo.ref(node.args[1]), dtype) if lo.ref(node.args[1]).dtype is DType.u8 else lo.ref(node.args[1])
    if source.shape != shape:
        source = Expanded(source, shape, node)
    return source if source.dtype is dtype else unary(lo, "cast", source, shape, dtype)


# What is said to hold anything holds zeros.
_NUMBERS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1, "empty": 0, "empty_like": 0, "new_empty": 0,
}  # fmt: skip


@lowers(
    aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default, aten.zeros.default, aten.ones.default,
    aten.zeros_like.default, aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default, aten.empty.memory_format,
    aten.empty_like.default, aten.new_empty.default, view=True,
)  # fmt: skip
def _full(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    word = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    number: Any = _NUMBERS.get(word)
    if number is None:
        number = node.args[{"scalar_tensor": 0, "full": 1, "full_like": 1, "new_full": 2}[word]]
    if not isinstance(number, (bool, int, float)):
        raise Unsupported("a number that is known only at run time")
    return Number(number, shape, dtype)


@lowers(aten.fill.Scalar, aten.fill.Tensor)
def _fill(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    number: Any = node.args[1]
    if isinstance(number, Node):
        known = constant(number)
        if known is None:
            source = converted(lo, lo.ref(number), dtype)
            source = source if source.shape == shape else Expanded(source, shape, node)
            return source if source.dtype is dtype else unary(lo, "cast", source, shape, dtype)
        number = known.item()
    if not isinstance(number, (bool, int, float)):
        raise Unsupported("a number that is known only at run time")
    value = node.meta["val"].dtype
    return Number(number if value.is_floating_point else bool(number) if value is torch.bool else int(number), shape, dtype)
