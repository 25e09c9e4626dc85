"""Rotary embeddings among traced ops, in the ways they are written: with a half turned round, or both halves worked out.

    x * cos + cat(-x2, x1) * sin
    cat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)

Halves are x's first and second half, or its even and odd elements; the angle may go either way.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.fx import Node

__all__ = ["found"]

aten = torch.ops.aten

_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.clone.default}
_CASTS = {aten._to_copy.default, torch.ops.prims.convert_element_type.default}
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class _Half(NamedTuple):
    """Half `second` (0 or 1) of x's last axis: its elements side by side, or every other one."""

    x: Node
    second: int
    interleaved: bool


class _Turn(NamedTuple):
    """What a rotary embedding is made of."""

    x: Node
    cosines: Node
    sines: Node
    interleaved: bool
    back: bool


def found(joined: Node) -> bool:
    """Puts a call of `fx_match.rotary` in place of the embedding that a `cat` or `stack` of two halves is part of."""
    halves = _joined(joined)
    if halves is None:
        return False
    whole, first, second, interleaved = halves
    turn = _worked_out(first, second, interleaved)
    last = whole
    if turn is None:
        made = _turned_round(whole, first, second, interleaved)
        if made is None:
            return False
        turn, last = made
    if not _fits(turn, last):
        return False
    while (user := _only_user(last)) is not None and user.target in _CASTS and _is_float(user):
        last = user
    _replace(last, turn)
    return True


def _replace(last: Node, turn: _Turn) -> None:
    from .fx_match import rotary

    x = _uncast(turn.x)
    args: tuple[Any, ...] = (x, turn.cosines, turn.sines, turn.interleaved, turn.back, last.meta["val"].dtype)
    shape = tuple(turn.cosines.meta["val"].shape[:-1])
    shape = (1,) * (x.meta["val"].dim() - 1 - len(shape)) + shape
    varying = tuple(not (isinstance(extent, int) and extent == 1) for extent in shape)
    bare = [_rows_of(one) for one in (turn.cosines, turn.sines)]
    taken = [_gathered(one) for one in bare]
    if taken[0] is not None and taken[1] is not None and taken[0][1] is taken[1][1]:
        args = (x, taken[0][0], taken[1][0], *args[3:], taken[0][1], varying)
    elif all(one.meta["val"].dim() == 2 for one in bare):
        args = (x, *bare, *args[3:], None, varying)
    with last.graph.inserting_before(last):
        made = last.graph.call_function(rotary, args)
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)


def _fits(turn: _Turn, last: Node) -> bool:
    """Whether shapes and types are a rotary embedding's."""
    x, cosines, sines, result = (one.meta["val"] for one in (turn.x, turn.cosines, turn.sines, last))
    if not x.dim() or x.shape != result.shape or not all(_is_float(one) for one in (turn.x, turn.cosines, turn.sines, last)):
        return False
    size = x.shape[-1]
    if not isinstance(size, int) or size < 2 or size % 2 or cosines.shape != sines.shape or cosines.dtype != sines.dtype:
        return False
    if not cosines.dim() or cosines.dim() > x.dim() or cosines.shape[-1] not in (size, size // 2):
        return False
    behind = x.shape[x.dim() - cosines.dim() : -1]
    return all(have == want or (isinstance(have, int) and have == 1) for have, want in zip(cosines.shape[:-1], behind, strict=True))


# ---- the two ways ----------------------------------------------------------------------------------------------------------------------


def _worked_out(first: Node, second: Node, interleaved: bool) -> _Turn | None:
    """x1 * cos - x2 * sin, x2 * cos + x1 * sin."""
    for own, other in _sums(first):
        a, b = _halves(own[1]), _halves(other[1])
        for half, cosines in a:
            for across, sines in b:
                if (half.second, across.second) != (0, 1) or half.interleaved != interleaved or across.interleaved != interleaved:
                    continue
                if _uncast(half.x) is not _uncast(across.x) or own[0] < 0:
                    continue
                sign, table = _signed(sines)
                sign *= other[0]
                if _is_other_half(second, half.x, cosines, table, -sign, interleaved):
                    return _Turn(half.x, cosines, table, interleaved, sign > 0)
    return None


def _is_other_half(node: Node, x: Node, cosines: Node, sines: Node, sign: int, interleaved: bool) -> bool:
    for own, other in _sums(node):
        if own[0] < 0:
            continue
        for half, table in _halves(own[1]):
            if half.second != 1 or half.interleaved != interleaved or _uncast(half.x) is not _uncast(x) or table is not cosines:
                continue
            for across, given in _halves(other[1]):
                of, bare = _signed(given)
                fits = across.second == 0 and across.interleaved == interleaved and _uncast(across.x) is _uncast(x)
                if fits and bare is sines and of * other[0] == sign:
                    return True
    return False


def _turned_round(whole: Node, first: Node, second: Node, interleaved: bool) -> tuple[_Turn, Node] | None:
    """x * cos + (-x2, x1) * sin."""
    (sign, a), (other, b) = _signed(first), _signed(second)
    one, two = _half(a), _half(b)
    if one is None or two is None or sign == other or (one.second, two.second) != (1, 0):
        return None
    if one.interleaved != interleaved or two.interleaved != interleaved or _uncast(one.x) is not _uncast(two.x):
        return None
    turned = whole
    while (user := _only_user(turned)) is not None and user.target in _CASTS and _is_float(user):
        turned = user
    product = _only_user(turned)
    if product is None or product.target is not aten.mul.Tensor:
        return None
    total = _only_user(product)
    while total is not None and total.target in _CASTS and _is_float(total):
        product, total = total, _only_user(total)
    if total is None:
        return None
    for own, across in _sums(total):
        if own[0] < 0 or _uncast(across[1]) is not _uncast(product):
            continue
        sines = _factor(_uncast(product), turned)
        for x, cosines in _factors(own[1]):
            if sines is not None and isinstance(x, Node) and _uncast(x) is _uncast(one.x) and isinstance(cosines, Node):
                return _Turn(x, _exact(cosines), _exact(sines), interleaved, sign * across[0] > 0), total
    return None


# ---- pieces ----------------------------------------------------------------------------------------------------------------------------


def _joined(node: Node) -> tuple[Node, Node, Node, bool] | None:
    """Two halves side by side along the last axis, or by turns: the whole, the halves, whether by turns."""
    parts = node.args[0]
    if not isinstance(parts, (list, tuple)) or len(parts) != 2 or not all(isinstance(one, Node) for one in parts):
        return None
    first, second = parts
    rank = node.meta["val"].dim()
    axis = int(node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % max(rank, 1)  # type: ignore[arg-type]
    if first.meta["val"].shape != second.meta["val"].shape:  # type: ignore[union-attr]
        return None
    if node.target is aten.cat.default and axis == rank - 1:
        bare = [_unsqueezed(one, rank) for one in parts]
        if all(one is not None for one in bare):
            whole = _viewed(node)
            return None if whole is None else (whole, bare[0], bare[1], True)
        return node, first, second, False  # type: ignore[return-value]
    if node.target is aten.stack.default and rank > 1:
        whole = _viewed(node)
        if whole is not None and axis in (rank - 1, rank - 2):
            return whole, first, second, axis == rank - 1  # type: ignore[return-value]
    return None


def _unsqueezed(node: Any, rank: int) -> Any:
    """The operand of `node`, if `node` adds a last axis of one element; else None."""
    if node.target is aten.unsqueeze.default and int(node.args[1]) % rank == rank - 1:
        return node.args[0]
    return None


def _viewed(node: Node) -> Node | None:
    """The view that makes one of the last two axes."""
    user = _only_user(node)
    if user is None or user.target not in _VIEWS:
        return None
    have, want = node.meta["val"].shape, user.meta["val"].shape
    return user if tuple(have[:-2]) == tuple(want[:-1]) and want[-1] == have[-1] * have[-2] else None


def _half(node: Any) -> _Half | None:
    """Which half of what a node is."""
    node = _uncast(node)
    if not isinstance(node, Node) or node.op != "call_function":
        return None
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        of, index = node.args[0], node.args[1]
        x = of.args[0] if of.args else None
        if not isinstance(x, Node) or index not in (0, 1) or not isinstance(x.meta.get("val"), torch.Tensor):
            return None
        rank, size = x.meta["val"].dim(), x.meta["val"].shape[-1]
        if of.target is aten.split.Tensor and _axis(of, 2, rank) == rank - 1 and of.args[1] * 2 == size:  # type: ignore[operator]
            return _Half(x, int(index), False)  # type: ignore[arg-type]
        sizes: Any = of.args[1] if of.target is aten.split_with_sizes.default else ()
        if list(sizes) == [size // 2] * 2 and _axis(of, 2, rank) == rank - 1:
            return _Half(x, int(index), False)  # type: ignore[arg-type]
        return _of_pairs(x, _axis(of, 1, rank), int(index)) if of.target is aten.unbind.int else None  # type: ignore[arg-type]
    if node.target is aten.select.int and node.args[2] in (0, 1):
        base = node.args[0]
        return _of_pairs(base, int(node.args[1]) % base.meta["val"].dim(), int(node.args[2]))  # type: ignore[union-attr,arg-type]
    if node.target is aten.slice.Tensor and isinstance(node.args[0], Node):
        x = node.args[0]
        rank, size = x.meta["val"].dim(), x.meta["val"].shape[-1]
        if not isinstance(size, int) or size % 2 or _axis(node, 1, rank) != rank - 1:
            return None
        begin, end, step = (tuple(node.args[2:]) + (None, None, 1)[len(node.args) - 2 :])[:3]
        places = range(size)[slice(begin, end, step)]
        for second in (0, 1):
            if places == range(second * size // 2, (second + 1) * size // 2):
                return _Half(x, second, False)
            if places == range(second, size, 2):
                return _Half(x, second, True)
    return None


def _of_pairs(node: Any, axis: int, second: int) -> _Half | None:
    """A half of what is viewed as [..., D / 2, 2] or [..., 2, D / 2]."""
    value = node.meta["val"]
    rank = value.dim()
    if rank < 2 or axis not in (rank - 1, rank - 2) or value.shape[axis] != 2:
        return None
    view = _uncast(node)
    if view.op != "call_function" or view.target not in _VIEWS - {aten.clone.default} or not isinstance(view.args[0], Node):
        return None
    x = view.args[0]
    if tuple(x.meta["val"].shape) != (*value.shape[:-2], value.shape[-1] * value.shape[-2]):
        return None
    return _Half(x, second, axis == rank - 1)


def _halves(product: Any) -> list[tuple[_Half, Node]]:
    """The factors of a product, once for each that is a half: that half, and the other factor."""
    made = []
    for one, other in _factors(product):
        half = _half(one)
        if half is not None and isinstance(other, Node):
            made.append((half, _exact(other)))
    return made


def _factors(product: Any) -> Iterator[tuple[Any, Any]]:
    product = _uncast(product)
    if isinstance(product, Node) and product.target is aten.mul.Tensor:
        yield product.args[0], product.args[1]
        yield product.args[1], product.args[0]


def _factor(product: Node, one: Node) -> Node | None:
    """The factor of `product` beside `one`, or None."""
    for mine, other in _factors(product):
        if mine is one and isinstance(other, Node):
            return other
    return None


def _sums(node: Any) -> Iterator[tuple[tuple[int, Any], tuple[int, Any]]]:
    """A sum or difference as two signed terms, in both orders."""
    node = _uncast(node)
    if not isinstance(node, Node) or node.target not in (aten.add.Tensor, aten.sub.Tensor) or node.kwargs or len(node.args) != 2:
        return
    (one, a), (two, b) = _signed(node.args[0]), _signed(node.args[1])
    if node.target is aten.sub.Tensor:
        two = -two
    yield (one, a), (two, b)
    yield (two, b), (one, a)


def _signed(node: Any) -> tuple[int, Any]:
    """The sign of `node`, and the node without its negations."""
    sign, node = 1, _exact(node)
    while isinstance(node, Node) and node.target is aten.neg.default:
        sign, node = -sign, _exact(node.args[0])
    return sign, node


def _exact(node: Any) -> Any:
    """`node` without conversions to wider types, which keep all values."""
    while isinstance(node, Node) and node.target in _CASTS and isinstance(node.args[0], Node):
        have, want = node.args[0].meta["val"].dtype, node.meta["val"].dtype
        if have == want or (want is torch.float32 and have in _FLOATS):
            node = node.args[0]
        else:
            break
    return node


def _uncast(node: Any) -> Any:
    """`node` without conversions between float types."""
    while isinstance(node, Node) and node.target in _CASTS and _is_float(node) and _is_float(node.args[0]):
        node = node.args[0]
    return node


def _rows_of(node: Node) -> Node:
    """A table before its rows were given other axes."""
    last = node.meta["val"].shape[-1]
    while node.target in _VIEWS or node.target in (aten.unsqueeze.default, aten.alias.default) or _is_all(node):
        base = node.args[0]
        if not isinstance(base, Node) or not base.meta["val"].dim() or base.meta["val"].shape[-1] != last:
            break
        node = base
    return node


def _gathered(node: Node) -> tuple[Node, Node] | None:
    """A 2-D table and the row numbers by which `node` takes rows from it; None if it does not."""
    if node.target is aten.index.Tensor:
        table, given = node.args[0], node.args[1]
        rows = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else None
    elif node.target is aten.embedding.default:
        table, rows = node.args[0], node.args[1]
    elif node.target is aten.index_select.default and node.args[1] == 0:
        table, rows = node.args[0], node.args[2]
    else:
        return None
    if not isinstance(table, Node) or not isinstance(rows, Node) or table.meta["val"].dim() != 2:
        return None
    return (table, rows) if rows.meta["val"].dtype in (torch.int64, torch.int32) else None


def _is_all(node: Node) -> bool:
    """Whether the node is a slice that leaves nothing out: torch traces [:] of an axis of varying size as one."""
    if node.target is not aten.slice.Tensor:
        return False
    begin, end, step = (tuple(node.args[2:]) + (None, None, 1)[len(node.args) - 2 :])[:3]
    return begin in (None, 0) and (end is None or (isinstance(end, int) and end >= sys.maxsize)) and step == 1


def _axis(node: Node, position: int, rank: int) -> int:
    given = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    return int(given) % rank  # type: ignore[arg-type]


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in _FLOATS


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
