"""Products, norms, reductions and rows by number among traced ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from . import fx_match
from .dtypes import DType
from .fx_lower import (
    FLOATS,
    Dense,
    Extent,
    Heads,
    Lazy,
    Lowering,
    Operand,
    Permuted,
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
    written,
)
from .fx_pointwise import binary, converted, scaled, suffix, unary, unexpanded
from .fx_views import concatenated, permuted, sliced, straight

aten = torch.ops.aten

# ---- products --------------------------------------------------------------------------------------------------------------------------


def product_of(lo: Lowering, a: Ref, b: Ref, shape: Shape, dtype: DType, bias: Ref | None = None) -> Dense:
    """a[..., K] times b[K, N]."""
    if a.dtype is DType.u8 or b.dtype is DType.u8 or (a.dtype is DType.i32) != (b.dtype is DType.i32):
        raise Unsupported(f"a product of {a.dtype} and {b.dtype}")
    inner = a.shape[-1]
    static(b.shape, "the right operand of a product")
    static([inner], "a product: what it sums over")
    turned = isinstance(b, Permuted) and len(b.perm) == 2
    right = b.base if isinstance(b, Permuted) and turned else b
    matrix = lo.shaped(right, right.shape if turned or len(right.shape) == 2 else b.shape)
    left = lo.dense(a)
    form = left.form if left.form[-1] == inner else lo.matrix(a, inner)
    operands = [lo.shaped(left, form), matrix]
    if bias is not None:
        operands.append(lo.shaped(bias, (b.shape[-1],)))
    value = lo.graph.matmul(*operands, transpose_b=turned, **common_of(lo, dtype))
    return lo.made(value, (*form[:-1], b.shape[-1]), shape, dtype)


@lowers(aten.mm.default)
def _mm(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    return product_of(lo, lo.ref(node.args[0]), lo.ref(node.args[1]), shape, dtype)


@lowers(aten.addmm.default)
def _addmm(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    bias, a, b = (lo.ref(one) for one in node.args[:3])
    beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
    bare = unexpanded(bias)
    if alpha == 1 and beta == 1 and suffix(bare.shape, shape) == (shape[-1],) and (bare.dtype in FLOATS) == (dtype in FLOATS):
        return product_of(lo, a, b, shape, dtype, bare)
    name, lo.name = lo.name, ""
    wide = DType.f32 if dtype in FLOATS else dtype
    found: Operand = product_of(lo, a, b, shape, wide)
    found = scaled(lo, found, alpha, wide)
    if beta != 0:
        added = scaled(lo, bias, beta, wide)
        lo.name = name
        return binary(lo, "add", found, added, shape, wide, dtype)
    lo.name = name
    return unary(lo, "cast", found, shape, dtype)  # type: ignore[arg-type]


@lowers(aten.bmm.default)
def _bmm(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    a, b = lo.ref(node.args[0]), lo.ref(node.args[1])
    if shape[0] != 1:
        return _few_products(lo, a, b, shape, dtype, node)
    right: Ref
    if isinstance(b, Permuted) and b.perm == (0, 2, 1):
        right = Permuted(lo.dense(b.base).viewed(b.base.shape[1:]), (1, 0), node)
    else:
        right = lo.dense(b).viewed(b.shape[1:])
    left = lo.dense(a)
    return product_of(lo, left.viewed(a.shape[1:]), right, shape, dtype)


MOST_PRODUCTS = 16
"""A batch of so many matrices is written out as products of each."""


def _few_products(lo: Lowering, a: Ref, b: Ref, shape: Shape, dtype: DType, node: Node) -> Any:
    count = shape[0]
    if not isinstance(count, int) or count > MOST_PRODUCTS:
        raise Unsupported(f"MACO has no product of batches of matrices, and {count} are too many to write out")
    static([*a.shape, *b.shape], "a product of batches")
    name, lo.name = lo.name, ""
    turned = isinstance(b, Permuted) and b.perm == (0, 2, 1)
    right = b.base if isinstance(b, Permuted) and turned else b
    found = []
    for i in range(count):
        left = lo.dense(sliced(lo, a, 0, i, i + 1, 1, (1, *a.shape[1:]), node)).viewed(a.shape[1:])
        matrix: Ref = lo.dense(sliced(lo, right, 0, i, i + 1, 1, (1, *right.shape[1:]), node)).viewed(right.shape[1:])
        found.append(product_of(lo, left, permuted(matrix, (1, 0), node) if turned else matrix, (1, *shape[1:]), dtype))
    lo.name = name
    return concatenated(lo, found, 0, shape, dtype)


@lowers(aten.linear.default)
def _linear(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x, weight = lo.ref(node.args[0]), lo.ref(node.args[1])
    bias = operand_of(node, 2, "bias")
    return product_of(lo, x, permuted(weight, (1, 0), node), shape, dtype, None if bias is None else lo.ref(bias))


@lowers(aten.mv.default)
def _mv(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    a, b = lo.ref(node.args[0]), lo.ref(node.args[1])
    column = lo.dense(b).viewed((b.shape[0], 1))
    return product_of(lo, a, column, shape, dtype)


@lowers(aten.dot.default)
def _dot(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    a, b = lo.ref(node.args[0]), lo.ref(node.args[1])
    column = lo.dense(b).viewed((b.shape[0], 1))
    return product_of(lo, lo.dense(a).viewed((1, *a.shape)), column, shape, dtype)


# ---- norms, softmax, reductions --------------------------------------------------------------------------------------------------------


def used_results(node: Node) -> set[int]:
    """Which of several results somebody reads."""
    return {int(user.args[1]) for user in node.users if len(user.args) == 2 and user.users}  # type: ignore[arg-type]


def _last(lo: Lowering, x: Ref, axes: Sequence[int], node: Node) -> tuple[Ref, Extent]:
    """x with some axes moved behind the others, and how many elements these have."""
    rank = len(x.shape)
    chosen = sorted({axis % rank for axis in axes}) if rank else []
    rest = [i for i in range(rank) if i not in chosen]
    return permuted(x, (*rest, *chosen), node), product([x.shape[i] for i in chosen])


@lowers(aten._softmax.default, aten.softmax.int)
def _softmax(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    if x.dtype not in FLOATS:
        raise Unsupported(f"softmax of {x.dtype}")
    rank = len(shape)
    axis = int(node.args[1]) % rank if rank else 0  # type: ignore[arg-type]
    moved, width = _last(lo, x, [axis], node)
    form = lo.dense(moved).form
    if form[-1] != width:
        form = lo.matrix(moved, width)
    if len(form) > 1 or rank > 1:
        static([width], "softmax")
    value = lo.graph.softmax(lo.shaped(moved, form), **common_of(lo, dtype))
    made = lo.made(value, form, moved.shape, dtype)
    if rank < 2 or axis == rank - 1:
        return made.viewed(shape)
    order = [i for i in range(rank) if i != axis] + [axis]
    return permuted(made, tuple(order.index(i) for i in range(rank)), node)


@lowers(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.amax.default, aten.argmax.default)
def _reduce(lo: Lowering, node: Node) -> Any:
    packet = node.target.overloadpacket  # type: ignore[union-attr]
    x = lo.ref(node.args[0])
    rank = len(x.shape)
    axes: Any = None if node.target in (aten.sum.default, aten.mean.default) else operand_of(node, 1, "dim")
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        axes = list(range(rank))
    axes = [axes] if isinstance(axes, int) else list(axes)
    if packet is aten.argmax:
        shape, dtype = extents(node.meta["val"].shape), DType.i32
    else:
        shape, dtype = result_of(node)
    if packet is aten.mean and x.dtype not in FLOATS:
        raise Unsupported(f"the mean of {x.dtype}")
    if packet is aten.sum and dtype not in FLOATS and x.dtype in FLOATS:
        raise Unsupported("a sum of floats as integers")
    if packet is aten.sum and dtype in FLOATS and x.dtype not in FLOATS:
        x = converted(lo, x, DType.f32)
    return reduced(lo, {aten.amax: "max", aten.sum: "sum", aten.mean: "mean", aten.argmax: "argmax"}[packet], x, axes, shape, dtype, node)


def reduced(lo: Lowering, kind: str, x: Ref, axes: Sequence[int], shape: Shape, dtype: DType, node: Node) -> Dense:
    """A reduction over some axes, to `shape`."""
    moved, width = _last(lo, x, axes, node)
    if len(moved.shape) != len(axes):
        static([width], "a reduction")
    rows = divided(product(x.shape), width)
    form: Shape = (rows, width)
    if rows == 1:
        form = (width,)
    elif lo.dense(moved).form[-1] == width:
        form = lo.dense(moved).form
    common = common_of(lo, None if kind == "argmax" else dtype)
    value = getattr(lo.graph, kind)(lo.shaped(moved, form), **common)
    return lo.made(value, form[:-1] or (1,), shape, dtype)


@lowers(aten.max.dim)
def _max_dim(lo: Lowering, node: Node) -> Any:
    x = lo.ref(node.args[0])
    axis = int(node.args[1]) % max(len(x.shape), 1)  # type: ignore[arg-type]
    shape, dtype = result_of(node, 0)
    axes = [axis] if x.shape else []
    used = used_results(node)
    name, lo.name = lo.name, ""
    value = reduced(lo, "max", x, axes, shape, dtype, node) if 0 in used else None
    index = reduced(lo, "argmax", x, axes, shape, DType.i32, node) if 1 in used else None
    lo.name = name
    return value, index


@lowers(aten.var.correction, aten.var_mean.correction)
def _variance(lo: Lowering, node: Node) -> Any:
    both = node.target is aten.var_mean.correction
    x = lo.ref(node.args[0])
    rank = len(x.shape)
    axes = operand_of(node, 1, "dim")
    axes = list(range(rank)) if not axes else [int(axis) % rank for axis in ([axes] if isinstance(axes, int) else axes)]
    correction = node.kwargs.get("correction", 1)
    shape, dtype = result_of(node, 0 if both else None)
    count = product([x.shape[axis] for axis in axes])
    if x.dtype not in FLOATS or not isinstance(count, int) or not isinstance(correction, (int, float, type(None))):
        raise Unsupported(f"the variance of {x.dtype}, or of a number of elements that is known only at run time")
    less = count - (1 if correction is None else correction)
    if less <= 0:
        raise Unsupported("the variance of too few elements")
    name, lo.name = lo.name, ""
    kept = tuple(1 if i in axes else one for i, one in enumerate(x.shape))
    mean = reduced(lo, "mean", x, axes, kept, DType.f32, node)
    centred = binary(lo, "sub", x, mean, x.shape, DType.f32)
    total = reduced(lo, "sum", binary(lo, "mul", centred, centred, x.shape, DType.f32), axes, shape, DType.f32, node)
    lo.name = name
    variance = binary(lo, "mul", total, 1.0 / less, shape, DType.f32, dtype)
    if not both:
        return variance
    shape, dtype = result_of(node, 1)
    return variance, lo.dense(unary(lo, "cast", mean, mean.shape, dtype) if dtype is not DType.f32 else mean).viewed(shape)


@lowers(aten._softmax_backward_data.default)
def _softmax_backward(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node)
    grad, y, axis = lo.ref(node.args[0]), lo.ref(node.args[1]), int(node.args[2])  # type: ignore[arg-type]
    if not shape:
        raise Unsupported("a softmax without axes")
    axis %= len(shape)
    name, lo.name = lo.name, ""
    kept = tuple(1 if i == axis else one for i, one in enumerate(shape))
    weighted = binary(lo, "mul", grad, y, shape, DType.f32)
    total = reduced(lo, "sum", weighted, [axis], kept, DType.f32, node)
    less = binary(lo, "sub", grad, total, shape, DType.f32)
    lo.name = name
    return binary(lo, "mul", less, y, shape, DType.f32, dtype)


# ---- rows by number --------------------------------------------------------------------------------------------------------------------


def _gathered(lo: Lowering, node: Node, table: Ref, ids: Any, kind: str) -> Dense:
    shape, dtype = result_of(node)
    if not table.shape:
        raise Unsupported("rows of a tensor without axes")
    count = table.shape[0]
    static(table.shape, "a table")
    known = lo.refs.get(ids)
    # An index may be negative; i64 that MACO computes can't be, positions of argmax.
    if isinstance(known, Ref) and known.dtype is DType.i32 and (kind == "ids" or ids.meta["val"].dtype is torch.int64):
        numbers: Ref = known
    else:
        numbers = lo.outside(ids, (kind, count))
    if product(numbers.shape) == 0:
        raise Unsupported("a tensor without elements")
    width = product(table.shape[1:])
    flat = product(numbers.shape)
    value = lo.graph.embedding(lo.shaped(table, (count, width)), lo.shaped(numbers, (flat,)), **common_of(lo, dtype))
    return lo.made(value, (flat, width), shape, dtype)


@lowers(aten.embedding.default)
def _embedding(lo: Lowering, node: Node) -> Any:
    return _gathered(lo, node, lo.ref(node.args[0]), node.args[1], "ids")


@lowers(aten.index_select.default)
def _index_select(lo: Lowering, node: Node) -> Any:
    if node.args[1] != 0:
        raise Unsupported("indices of another axis than the first")
    return _gathered(lo, node, lo.ref(node.args[0]), node.args[2], "ids")


@lowers(aten.index.Tensor)
def _index(lo: Lowering, node: Node) -> Any:
    indices = node.args[1]
    if len(indices) != 1 or not isinstance(indices[0], Node):  # type: ignore[arg-type]
        raise Unsupported("indices of another axis than the first, or of several")
    if indices[0].meta["val"].dtype not in (torch.int64, torch.int32):  # type: ignore[index,union-attr]
        raise Unsupported("a mask: how many elements it gives is known only at run time")
    return _gathered(lo, node, lo.ref(node.args[0]), indices[0], "index")  # type: ignore[index]


# ---- what fx_match finds ---------------------------------------------------------------------------------------------------------------


@lowers(fx_match.attention)
def _attention(lo: Lowering, node: Node) -> Any:
    """Batches and heads are heads of MACO's, whose rows have all of them: [T, B * H * D]."""
    shape, dtype = result_of(node)
    q, k, v = (lo.ref(one) for one in node.args[:3])
    causal, scale = bool(node.args[3]), node.args[4]
    if k.shape != v.shape or len(q.shape) != len(k.shape) or q.shape[-1] != k.shape[-1]:
        raise Unsupported("attention whose keys and values have other shapes than its queries")
    if not all(one.dtype in FLOATS for one in (q, k, v)):
        raise Unsupported(f"attention of {q.dtype}")
    rank, width, rows, keys = len(q.shape), q.shape[-1], q.shape[-2], k.shape[-2]
    if rank < 2 or q.shape[: max(rank - 3, 0)] != k.shape[: max(rank - 3, 0)]:
        raise Unsupported("attention of batches that are broadcast")
    heads, shared = product(q.shape[:-2]), product(k.shape[:-2])
    static([heads, shared, width], "attention")
    if heads % shared or not 1 <= width <= 2048:  # type: ignore[operator]
        raise Unsupported(f"attention of {heads} heads over {shared}, of {width} columns")
    counted: Any = keys
    last = node.args[7] if len(node.args) > 7 else None
    if last is not None:
        static([keys], "attention")
        counted = lo.outside(last, ("position", keys)) + 1  # type: ignore[arg-type]
    if causal and rows != keys:
        if not (isinstance(rows, int) and isinstance(keys, int) and rows < keys):
            raise Unsupported("causal attention of more queries than keys")
        counted = rows  # query i sees keys up to i
    whole = last is None and counted == keys
    if last is None:
        counted = written(counted)
    order = (rank - 2, *range(rank - 2), rank - 1)
    if rank > 3 and not (isinstance(rows, int) and isinstance(keys, int)) and product(shape[:-3]) != 1:
        return _attention_of_each(lo, q, k, v, causal, scale, shape, dtype, node)
    queries = lo.shaped(permuted(q, order, node), (rows, heads * width))
    attributes: dict[str, Any] = {"head_dim": width, "causal": causal, "scale": None if scale is None else float(scale)}
    made = (rows, heads * width), (rows, *shape[:-2], width), dtype
    back = (*range(1, rank - 1), 0, rank - 1)
    each = _heads(k), _heads(v)
    if each[0] is not None and each[1] is not None and len(each[0].parts) == len(each[1].parts) == shared:
        # Each head of a cache is a state of its own.
        name, lo.name = lo.name, ""
        columns = heads * width // shared  # type: ignore[operator]
        found = []
        for i, (part, other) in enumerate(zip(each[0].parts, each[1].parts, strict=True)):
            own = lo.graph.slice(queries, axis=1, begin=i * columns or None, end=(i + 1) * columns if i < shared - 1 else None)
            found.append(lo.graph.attention(own, part.value, other.value, length=counted, **attributes, **common_of(lo, dtype)))
        lo.name = name
        value = lo.graph.concat(*found, axis=1, **common_of(lo, dtype))
        return permuted(lo.made(value, *made), back, node)
    k, v = (straight(permuted(one, order, node)) for one in (k, v))
    first, second = (getattr(one, "prefix", None) for one in (k, v))
    length = None if whole else counted
    tall: Any = keys
    if first is not None and second is not None and first[1] == second[1]:
        # Attention reads the first `counted` rows of a cache.
        k, v, length = first[0], second[0], counted
        tall = divided(product(k.shape), shared * width)  # type: ignore[operator]
    keyed, valued = (lo.shaped(one, (tall, shared * width)) for one in (k, v))
    value = lo.graph.attention(queries, keyed, valued, length=length, **attributes, **common_of(lo, dtype))
    return permuted(lo.made(value, *made), back, node)


def _attention_of_each(lo: Lowering, q: Ref, k: Ref, v: Ref, causal: bool, scale: Any, shape: Shape, dtype: DType, node: Node) -> Any:
    """Attention of batches whose number of rows varies with the launch, one batch after the other."""
    batch, (rows, width), keys = product(shape[:-3]), shape[-2:], k.shape[-2]
    if not isinstance(batch, int) or batch > MOST_PRODUCTS:
        raise Unsupported(f"attention of {batch} batches of rows whose number is known only at run time")
    if causal and rows != keys:
        raise Unsupported("causal attention of another number of queries than keys")
    name, lo.name = lo.name, ""
    rank = len(shape)
    order = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    heads, shared = shape[-3], k.shape[-3]
    whole = [lo.shaped(permuted(one, order, node), (batch * one.shape[-2], one.shape[-3] * width)) for one in (q, k, v)]
    found = []
    for i in range(batch):
        own = [
            lo.graph.slice(value, axis=0, begin=written(i * count) if i else None, end=written((i + 1) * count) if i < batch - 1 else None)
            for value, count in zip(whole, (rows, keys, keys), strict=True)
        ]
        found.append(
            lo.graph.attention(*own, head_dim=width, causal=causal, scale=None if scale is None else float(scale), **common_of(lo, dtype))
        )
    lo.name = name
    static([heads, shared, width], "attention")
    made = lo.made(
        lo.graph.concat(*found, axis=0, **common_of(lo, dtype)), (batch * rows, heads * width), tuple(shape[i] for i in order), dtype
    )
    return permuted(made, order, node)


def _heads(x: Ref) -> Heads | None:
    """The states that keys or values lie in, all of their rows or the first."""
    if isinstance(x, Lazy) and x.prefix is not None:
        x = x.prefix[0]
    return x if isinstance(x, Heads) else None
