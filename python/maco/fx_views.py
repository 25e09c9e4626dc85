"""Views and movement among traced ops."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from .dtypes import DType
from .fx_lower import (
    LOWERED,
    VIEWS,
    Dense,
    Expanded,
    Extent,
    Heads,
    Lazy,
    Lowering,
    Number,
    Permuted,
    Ref,
    Shape,
    Unsupported,
    common_of,
    extent,
    extents,
    lowers,
    operand_of,
    product,
    result_of,
    static,
    written,
)
from .fx_pointwise import converted, unexpanded

aten = torch.ops.aten

# ---- views -----------------------------------------------------------------------------------------------------------------------------


@lowers(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.alias.default, aten.detach.default, aten.flatten.using_ints, aten.lift_fresh_copy.default, aten.view.dtype,
    view=True,
)  # fmt: skip
def _view(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    if node.target is aten.view.dtype:
        raise Unsupported("bits under another dtype")
    if x.shape == shape:
        return x
    if isinstance(x, Number):
        return Number(x.number, shape, x.dtype)
    if isinstance(x, Dense):
        return x.viewed(shape)
    if isinstance(x, Expanded):
        # New axes of one element in front or between change nothing of what is broadcast.
        base = unexpanded(x)
        if [one for one in x.shape if one != 1] == [one for one in shape if one != 1]:
            moved = _unsqueezed(base.shape, x.shape, shape)
            if moved is not None and isinstance(lo.dense(base), Dense):
                return Expanded(lo.dense(base).viewed(moved), shape, node)
    if isinstance(x, Permuted):
        moved_perm = _permuted_view(x, shape)
        if moved_perm is not None:
            base_shape, perm = moved_perm
            return Permuted(lo.dense(x.base).viewed(base_shape), perm, node)
    return Lazy(shape, x.dtype, lambda: lo.dense(x).viewed(shape), node)


def _unsqueezed(base: Shape, have: Shape, want: Shape) -> Shape | None:
    """The shape of what was expanded to `have`, if axes of one element come and go to give `want`."""
    full = (1,) * (len(have) - len(base)) + base
    kept = [one for one, size in zip(full, have, strict=True) if size != 1]
    found: list[Extent] = []
    for size in want:
        found.append(1 if size == 1 else kept.pop(0))
    return tuple(found)


def _permuted_view(x: Permuted, want: Shape) -> tuple[Shape, tuple[int, ...]] | None:
    """Base and permutation of a view that splits axes, joins those that are neighbours in the base, too, or adds ones of one element."""
    groups = _aligned(x.shape, want)
    if groups is None:
        return None
    # For each axis of the base what it becomes, and where in the view that stands.
    pieces: dict[int, tuple[list[int], int]] = {}
    for sources, results in groups:
        axes = [x.perm[i] for i in sources if x.shape[i] != 1]
        if any(axes[i] + 1 != axes[i + 1] and _between(x.base.shape, axes[i], axes[i + 1]) for i in range(len(axes) - 1)):
            return None
        if axes and axes != sorted(axes):
            return None
        if axes:
            pieces[axes[0]] = (results, 0)
        elif any(want[i] != 1 for i in results):
            return None
    base: list[Extent] = []
    place: dict[int, int] = {}
    for axis in sorted(pieces):
        for result in pieces[axis][0]:
            place[result] = len(base)
            base.append(want[result])
    for i in range(len(want)):
        if i not in place:
            if want[i] != 1:
                return None
            place[i] = len(base)
            base.append(1)
    return tuple(base), tuple(place[i] for i in range(len(want)))


def _between(shape: Shape, first: int, second: int) -> bool:
    """Whether axes of more than one element lie between two."""
    return first > second or any(one != 1 for one in shape[first + 1 : second])


def _aligned(have: Shape, want: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Runs of axes of two shapes with as many elements each."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(have) or j < len(want):
        sources: list[int] = []
        results: list[int] = []
        left: Extent = 1
        right: Extent = 1
        while True:
            if not sources and i < len(have):
                sources.append(i)
                left = left * have[i]
                i += 1
            elif not results and j < len(want):
                results.append(j)
                right = right * want[j]
                j += 1
            elif left == right:
                break
            elif isinstance(left, int) and isinstance(right, int) and left < right and i < len(have):
                sources.append(i)
                left = left * have[i]
                i += 1
            elif isinstance(left, int) and isinstance(right, int) and right < left and j < len(want):
                results.append(j)
                right = right * want[j]
                j += 1
            else:
                return None
        groups.append((sources, results))
    return groups


@lowers(aten.t.default, aten.permute.default, aten.transpose.int, view=True)
def _permute(lo: Lowering, node: Node) -> Any:
    x = lo.ref(node.args[0])
    rank = len(x.shape)
    if node.target is aten.t.default:
        perm = tuple(reversed(range(rank)))
    elif node.target is aten.permute.default:
        perm = tuple(int(p) % rank for p in node.args[1])  # type: ignore[union-attr,arg-type]
    else:
        if not rank:
            return x
        first, second = int(node.args[1]) % rank, int(node.args[2]) % rank  # type: ignore[arg-type]
        order = list(range(rank))
        order[first], order[second] = order[second], order[first]
        perm = tuple(order)
    result_of(node, bools=True)
    return permuted(x, perm, node)


def permuted(x: Ref, perm: tuple[int, ...], node: Node) -> Ref:
    """x with its axes in another order."""
    while isinstance(x, Permuted):
        perm = tuple(x.perm[p] for p in perm)
        x = x.base
    if perm == tuple(range(len(perm))):
        return x
    if isinstance(x, Number):
        return Number(x.number, tuple(x.shape[p] for p in perm), x.dtype)
    return Permuted(x, perm, node)


def straight(x: Ref) -> Ref:
    """The tensor that x permutes, if only axes of one element move; the order of its axes may differ from x's."""
    if isinstance(x, Permuted):
        axes = [p for p in x.perm if x.base.shape[p] != 1]
        if axes == sorted(axes):
            return straight(x.base)
    return x


@lowers(aten.expand.default, view=True)
def _expand(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    if x.shape == shape:
        return x
    if isinstance(x, Number):
        return Number(x.number, shape, x.dtype)
    return Expanded(x, shape, node)


def sliced(lo: Lowering, x: Ref, axis: int, begin: int, end: int, step: int, shape: Shape, node: Node) -> Ref:
    """Indices of one axis."""
    if isinstance(x, Number):
        return Number(x.number, shape, x.dtype)
    if isinstance(x, Permuted):
        inner = x.perm[axis]
        cut = (*x.base.shape[:inner], len(range(begin, end, step)), *x.base.shape[inner + 1 :])
        return permuted(sliced(lo, x.base, inner, begin, end, step, cut, node), x.perm, node)

    if (begin, end, step) == (0, x.shape[axis], 1):
        return Lazy(shape, x.dtype, lambda: lo.dense(x).viewed(shape), node)  # all of it

    def make() -> Dense:
        size = x.shape[axis]
        form, at = _about(x.shape, axis)
        dense = lo.dense(x).form
        if form == (size,) and len(dense) > 1 and dense[-1] == size:
            form, at = (1, size), 1  # columns, which ops can read where they are
        count = len(range(begin, end, step))
        value = lo.graph.slice(lo.shaped(x, form), axis=at, begin=begin or None, end=None if end == size else end, step=step)
        return lo.made(value, [count if i == at else one for i, one in enumerate(form)], shape, x.dtype)

    return Lazy(shape, x.dtype, make, node)


@lowers(aten.slice.Tensor, view=True)
def _slice(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    axis = int(operand_of(node, 1, "dim", 0)) % len(x.shape)
    begin, end, step = operand_of(node, 2, "start"), operand_of(node, 3, "end"), operand_of(node, 4, "step", 1)
    if x.shape == shape:
        return x
    size = x.shape[axis]
    if not isinstance(size, int) or any(isinstance(one, (Node, torch.SymInt)) for one in (begin, end, step)):
        return _open_slice(lo, x, axis, begin, end, step, shape, node)
    begin, end, step = slice(begin, end, step).indices(size)
    if isinstance(x, Heads) and axis == x.axis and step == 1:
        return _first_rows(lo, x, begin, end, shape, node)
    found = sliced(lo, x, axis, begin, end, step, shape, node)
    if isinstance(found, Lazy) and begin == 0 and step == 1 and all(one == 1 for one in x.shape[:axis]):
        found.prefix = (x, end)
    return found


def _open_slice(lo: Lowering, x: Ref, axis: int, begin: Any, end: Any, step: Any, shape: Shape, node: Node) -> Ref:
    """Rows whose number launches decide."""
    size = x.shape[axis]
    first = extent(begin) if begin is not None else 0
    last = extent(end) if end is not None else size
    if isinstance(size, int) and isinstance(last, int):
        last = min(last, size)
    if step != 1 or (isinstance(first, int) and first < 0) or (isinstance(last, int) and last < 0):
        raise Unsupported("a slice whose bounds are known only at run time")
    if isinstance(first, int) and isinstance(last, int) and isinstance(size, int):
        return sliced(lo, x, axis, first, last, 1, shape, node)
    if isinstance(x, Heads) and axis == x.axis:
        return _first_rows(lo, x, first, last, shape, node)
    if isinstance(x, Permuted):
        inner = x.perm[axis]
        cut = (*x.base.shape[:inner], shape[axis], *x.base.shape[inner + 1 :])
        if any(one != 1 for one in x.base.shape[:inner]):
            raise Unsupported("a slice of another axis than the first, whose bounds are known only at run time")
        return permuted(_rows_of(lo, x.base, inner, first, last, cut, node), x.perm, node)
    if any(one != 1 for one in x.shape[:axis]):
        raise Unsupported("a slice of another axis than the first, whose bounds are known only at run time")
    return _rows_of(lo, x, axis, first, last, shape, node)


def _first_rows(lo: Lowering, x: Heads, first: Extent, last: Extent, shape: Shape, node: Node) -> Ref:
    """Some rows of each head."""

    def make() -> Dense:
        bounds = {"begin": written(first) if first != 0 else None, "end": written(last)}
        width = x.parts[0].form[1]
        if not isinstance(shape[x.axis], int):
            raise Unsupported("rows of several heads, whose number is known only at run time")
        parts = [lo.graph.slice(part.value, axis=0, **bounds) for part in x.parts]
        return lo.made(lo.graph.concat(*parts, axis=0), (product(shape[: x.axis + 1]), width), shape, x.dtype)

    found = Lazy(shape, x.dtype, make, node)
    if first == 0:
        found.prefix = (x, last)
    return found


def _rows_of(lo: Lowering, x: Ref, axis: int, first: Extent, last: Extent, shape: Shape, node: Node) -> Ref:
    def make() -> Dense:
        behind = product(x.shape[axis + 1 :])
        form = (x.shape[axis], behind)
        value = lo.graph.slice(lo.shaped(x, form), axis=0, begin=written(first) if first != 0 else None, end=written(last))
        return lo.made(value, (shape[axis], behind), shape, x.dtype)

    found = Lazy(shape, x.dtype, make, node)
    if first == 0:
        found.prefix = (x, last)
    return found


@lowers(aten.select.int, view=True)
def _select(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    axis, index = int(node.args[1]) % len(x.shape), node.args[2]  # type: ignore[arg-type]
    size = x.shape[axis]
    if not isinstance(size, int) or not isinstance(index, int):
        raise Unsupported("an index that is known only at run time")
    index %= size
    one = sliced(lo, x, axis, index, index + 1, 1, (*x.shape[:axis], 1, *x.shape[axis + 1 :]), node)
    return _without(lo, one, axis, shape, node)


def _without(lo: Lowering, x: Ref, axis: int, shape: Shape, node: Node) -> Ref:
    """x without an axis of one element."""
    if isinstance(x, Permuted):
        inner = x.perm[axis]
        base = _without(lo, x.base, inner, (*x.base.shape[:inner], *x.base.shape[inner + 1 :]), node)
        return permuted(base, tuple(p - (p > inner) for p in x.perm if p != inner), node)
    return Lazy(shape, x.dtype, lambda: lo.dense(x).viewed(shape), node)


@lowers(
    aten.split.Tensor, aten.split_with_sizes.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default, aten.unbind.int,
    aten.chunk.default, view=True,
)  # fmt: skip
def _split(lo: Lowering, node: Node) -> Any:
    x = lo.ref(node.args[0])
    unbind = node.target is aten.unbind.int
    axis = int(operand_of(node, 1 if unbind else 2, "dim", 0)) % len(x.shape)
    parts = []
    at = 0
    for i in range(len(node.meta["val"])):
        shape, _ = result_of(node, i, bools=True)
        count = 1 if unbind else shape[axis]
        if not isinstance(count, int) or not isinstance(x.shape[axis], int):
            raise Unsupported("a split of an axis whose size is known only at run time")
        whole = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        one = sliced(lo, x, axis, at, at + count, 1, whole, node)
        parts.append(Lazy(shape, x.dtype, partial(_seen_as, lo, one, shape), node) if unbind else one)
        at += count
    return tuple(parts)


def _seen_as(lo: Lowering, ref: Ref, shape: Shape) -> Dense:
    return lo.dense(ref).viewed(shape)


@lowers(operator.getitem, view=True)
def _getitem(lo: Lowering, node: Node) -> Any:
    source, index = node.args
    found = lo.refs.get(source)  # type: ignore[arg-type]
    if found is None:
        if isinstance(source, Node) and source.target in VIEWS and source not in lo.hard:
            name = lo.name
            found = lo.refs[source] = LOWERED[source.target](lo, source)
            lo.name = name
        else:
            return lo.given(node, "plain")
    one = found[index]
    if one is None:
        raise Unsupported("a result that MACO doesn't have")
    return one


# ---- concatenation ---------------------------------------------------------------------------------------------------------------------


@lowers(aten.cat.default)
def _cat(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    operands = [one for one in node.args[0] if product(extents(one.meta["val"].shape)) != 0]  # type: ignore[union-attr]
    axis = int(operand_of(node, 1, "dim", 0)) % len(shape)
    refs = [converted(lo, lo.ref(one), dtype) for one in operands]
    first = refs[0]
    if isinstance(first, Permuted) and all(isinstance(one, Permuted) and one.perm == first.perm for one in refs):
        # Elements stay where they are.
        inner = first.perm[axis]
        base = tuple(shape[first.perm.index(i)] for i in range(len(shape)))
        made = concatenated(lo, [one.base for one in refs], inner, base, dtype)  # type: ignore[attr-defined]
        return permuted(made, first.perm, node)
    return concatenated(lo, refs, axis, shape, dtype)


def _about(shape: Shape, axis: int) -> tuple[Shape, int]:
    """The shape in MACO in which an axis stands by itself, and where it does."""
    before, behind = product(shape[:axis]), product(shape[axis + 1 :])
    form: Shape = (before, shape[axis]) if behind == 1 else (before, shape[axis], behind)
    return (form[1:], 0) if before == 1 else (form, 1)


def concatenated(lo: Lowering, refs: Sequence[Ref], axis: int, shape: Shape, dtype: DType) -> Dense:
    """Tensors one behind the other along an axis."""
    values = [lo.shaped(one, _about((*shape[:axis], one.shape[axis], *shape[axis + 1 :]), axis)[0]) for one in refs]
    form, at = _about(shape, axis)
    common = common_of(lo, dtype)
    value = lo.graph.copy(values[0], **common) if len(values) == 1 else lo.graph.concat(*values, axis=at, **common)
    return lo.made(value, form, shape, dtype)


@lowers(aten.stack.default)
def _stack(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    axis = int(operand_of(node, 1, "dim", 0)) % len(shape)
    refs = [converted(lo, lo.ref(one), dtype) for one in node.args[0]]  # type: ignore[union-attr]
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    return concatenated(lo, [lo.dense(one).viewed(single) for one in refs], axis, shape, dtype)


@lowers(aten.repeat.default)
def _repeat(lo: Lowering, node: Node) -> Any:
    shape, _ = result_of(node, bools=True)
    x = lo.ref(node.args[0])
    repeats = tuple(node.args[1])  # type: ignore[arg-type]
    static([*x.shape, *(one for one in repeats if not isinstance(one, Node))])
    have = (1,) * (len(repeats) - len(x.shape)) + x.shape
    wide = tuple(one for pair in zip(repeats, have, strict=True) for one in pair)
    base = tuple(one for size in have for one in (1, size))
    expanded = Expanded(lo.dense(x).viewed(base), wide, node)
    return Lazy(shape, x.dtype, lambda: lo.dense(expanded).viewed(shape), node)


# ---- parts written into a whole --------------------------------------------------------------------------------------------------------


def _joined(lo: Lowering, whole: Ref, part: Ref, axis: int, begin: int, end: int, shape: Shape, dtype: DType, node: Node) -> Dense:
    """`whole` with `part` at indices begin to end of an axis."""
    size = shape[axis]
    if not isinstance(size, int):
        raise Unsupported("an axis whose size is known only at run time")
    pieces: list[Ref] = []
    for first, last in ((0, begin), (end, size)):
        if first < last:
            cut = (*shape[:axis], last - first, *shape[axis + 1 :])
            pieces.append(sliced(lo, whole, axis, first, last, 1, cut, node))
    at = 1 if begin > 0 else 0
    pieces.insert(at, part)
    return concatenated(lo, [converted(lo, one, dtype) for one in pieces], axis, shape, dtype)


@lowers(aten.slice_scatter.default, aten.select_scatter.default, aten.slice_backward.default, aten.select_backward.default)
def _scatter(lo: Lowering, node: Node) -> Any:
    shape, dtype = result_of(node, bools=True)
    backward = node.target in (aten.slice_backward.default, aten.select_backward.default)
    one = node.target in (aten.select_scatter.default, aten.select_backward.default)
    if backward:
        part: Ref = lo.ref(node.args[0])
        whole: Ref = Number(0, shape, dtype)
    else:
        whole, part = lo.ref(node.args[0]), lo.ref(node.args[1])
    keys = ("index",) if one else ("start", "end", "step")
    rest = [operand_of(node, 2, "dim", 0), *(operand_of(node, 3 + i, key) for i, key in enumerate(keys))]
    axis = int(rest[0]) % len(shape)
    size = shape[axis]
    if not isinstance(size, int) or not all(isinstance(number, (int, type(None))) for number in rest):
        raise Unsupported("an index or a size that is known only at run time")
    if one:
        begin = int(rest[1]) % size
        end = begin + 1
    else:
        begin, end, step = slice(*rest[1:]).indices(size)
        if step != 1:
            raise Unsupported("a step in what is written")
    form = (*shape[:axis], end - begin, *shape[axis + 1 :])
    if end <= begin:
        raise Unsupported("a tensor without elements")
    dense = lo.dense(part if product(part.shape) == product(form) else Expanded(part, form, node))
    return _joined(lo, whole, dense.viewed(form), axis, begin, end, shape, dtype, node)
