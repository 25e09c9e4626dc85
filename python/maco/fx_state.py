"""Inputs that a traced graph changes: caches that are written in part are changed where they are, not cloned.

AOT autograd makes of `cache[:, 3:5] = x` a new tensor and, at the end, a copy of all of it to the cache. Here such a chain of updates is
found, so that it runs in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from .expressions import Expr
from .fx_lower import FLOATS, VIEWS, Dense, Expanded, Extent, Heads, Lowering, Unsupported, extent, extents, plain_size, product, written
from .fx_views import permuted

__all__ = ["Update", "appended", "updates"]

aten = torch.ops.aten

# What writes a part of its first operand: where the source stands among the arguments.
_WRITES = {
    aten.index_put.default: 2,
    aten.index_copy.default: 3,
    aten.slice_scatter.default: 1,
    aten.select_scatter.default: 1,
    aten.copy.default: 1,
}
_VIEWED = {aten.slice_scatter.default: aten.slice.Tensor, aten.select_scatter.default: aten.select.int}


class Update:
    """A node that writes into a part of an input, and runs in place.

    `before` are readers of what was there; they run first. `inner` is the update of the part itself, if that is one.
    """

    def __init__(self, node: Node, input: Node, before: list[Node], inner: Update | None) -> None:
        self.node = node
        self.input = input
        self.before = before
        self.inner = inner

    def write(self, base: str, emit: Callable[[str], str], text: Callable[[Any], str], kept: Callable[[Any], str]) -> None:
        """Lines that write into the variable `base`. `emit` takes an expression and gives the variable that has it."""
        node = self.node
        target, args = node.target, list(node.args)
        source = args[_WRITES[target]]
        if target in _VIEWED:
            where = ", ".join(text(one) for one in args[2:])
            named = "".join(f", {key}={text(one)}" for key, one in node.kwargs.items())
            part = emit(f"{kept(_VIEWED[target])}({base}, {where}{named})")
            if self.inner is not None:
                self.inner.write(part, emit, text, kept)
            else:
                emit(f"{part}.copy_({text(source)})")
        elif target is aten.copy.default:
            emit(f"{base}.copy_({text(source)})")
        else:
            op = aten.index_put_.default if target is aten.index_put.default else aten.index_copy_.default
            emit(f"{kept(op)}({base}, {', '.join(text(one) for one in args[1:])})")

    def sources(self) -> list[Node]:
        """Nodes that have to be known before."""
        found = [one for one in self.node.all_input_nodes if one is not self.node.args[0]]
        if self.inner is not None:
            found = [one for one in found if one is not self.inner.node] + self.inner.sources()
        return found + self.before


MOST_HEADS = 16
"""Leading axes of so many elements at most become a state each."""


def appended(lo: Lowering, update: Update) -> Dense | Heads:
    """The update as an append of rows to a state, or to one for each head where heads lie ahead of rows."""
    node = update.node
    if update.before:
        raise Unsupported("a change in place of what is read before it, too")
    whole = extents(update.input.meta["val"].shape)
    axis, at, count, source = _rows(lo, update, whole)
    if not all(isinstance(one, int) for one in whole):
        raise Unsupported("a change in place of a tensor whose size launches decide")
    heads, width = product(whole[:axis]), product(whole[axis + 1 :])
    assert isinstance(heads, int)
    if heads > MOST_HEADS:
        raise Unsupported(f"a change in place of rows behind {heads} others: MACO appends to axis 0, and {MOST_HEADS} states are the most")
    part = lo.ref(source)
    form = (*whole[:axis], count, *whole[axis + 1 :])
    if part.shape != form and product(part.shape) != product(form):
        part = Expanded(part, form, node)
    elif part.shape != form:
        part = lo.dense(part).viewed(form)
    states = lo.states.get(update.input)
    if states is None:
        states = lo.states[update.input] = [lo.given(update.input, ("state", whole[axis], width, i)) for i in range(heads)]
    dtype = states[0].dtype
    if (part.dtype in FLOATS) != (dtype in FLOATS) or (part.dtype not in FLOATS and part.dtype is not dtype):
        raise Unsupported(f"rows of {part.dtype} in a tensor of {dtype}")
    place = at if isinstance(at, Expr) else written(at)
    if heads == 1:
        value = lo.graph.kv_append(states[0].value, lo.shaped(part, (count, width)), at=place)
        return Dense(value, (whole[axis], width), whole, dtype)
    # A row holds all heads; each head's state takes its columns.
    rows = lo.shaped(permuted(part, (axis, *range(axis), *range(axis + 1, len(whole))), node), (count, heads * width))
    made = []
    for i, state in enumerate(states):
        columns = lo.graph.slice(rows, axis=1, begin=i * width or None, end=(i + 1) * width if i < heads - 1 else None)
        value = lo.graph.kv_append(state.value, columns, at=place)
        made.append(Dense(value, (whole[axis], width), (whole[axis], width), dtype))
    return Heads(made, axis, whole, node)


def _rows(lo: Lowering, update: Update, whole: tuple[Extent, ...]) -> tuple[int, Any, Extent, Node]:
    """Which axis is written, from which row on, how many rows, and with what."""
    node, args = update.node, update.node.args
    rank = len(whole)
    source: Any = args[_WRITES[node.target]]
    if node.target in (aten.slice_scatter.default, aten.select_scatter.default):
        if update.inner is not None:
            if update.inner.inner is not None or update.inner.node.target is not aten.copy.default:
                raise Unsupported("a change in place of a part of a part")
            source = update.inner.node.args[1]
        found = _arguments(node, 2)
        axis = int(found[0]) % rank
        size = whole[axis]
        if node.target is aten.select_scatter.default:
            first = extent(found[1])
            return axis, first + size if isinstance(first, int) and first < 0 else first, 1, source
        first, last = (extent(one) if one is not None else None for one in found[1:3])
        if found[3] != 1:
            raise Unsupported("a change in place with a step")
        if isinstance(first, (int, type(None))) and isinstance(last, (int, type(None))) and isinstance(size, int):
            first, last, _ = slice(first, last).indices(size)
        if last is None or (isinstance(last, int) and isinstance(size, int) and last > size):
            last = size
        return axis, first or 0, plain_size(last - (first or 0)), source
    if node.target is aten.index_copy.default:
        axis, index = int(args[1]) % rank, args[2]  # type: ignore[arg-type]
    elif node.target is aten.index_put.default:
        given = list(args[1])  # type: ignore[arg-type]
        if len(args) > 3 and args[3] or node.kwargs.get("accumulate"):
            raise Unsupported("a change in place that adds")
        axis = next((i for i, one in enumerate(given) if one is not None), 0)
        index = given[axis]
        if any(one is not None for one in given[axis + 1 :]):
            raise Unsupported("a change in place by several indices")
    else:
        return 0, 0, whole[0] if whole else 1, source
    value = index.meta["val"]  # type: ignore[union-attr]
    if value.dtype not in (torch.int64, torch.int32) or product(extents(value.shape)) != 1:
        raise Unsupported("a change in place of rows whose numbers are known only at run time, and which needn't be neighbours")
    size = whole[axis]
    return axis, lo.outside(index, ("position", size)), 1, source


def updates(nodes: list[Node]) -> tuple[dict[Node, Update], set[Node]]:
    """Updates that can be made in place, by their nodes, and nodes that need not run for it: the final copies, and inner updates."""
    found: dict[Node, Update] = {}
    gone: set[Node] = set()
    place = {node: i for i, node in enumerate(nodes)}
    for copy in nodes:
        if copy.op != "call_function" or copy.target is not aten.copy_.default:
            continue
        chain = _chain(copy, place)
        if chain is not None:
            inner, more = chain
            found.update({one.node: one for one in inner})
            gone |= {copy, *more}
    return found, gone


def _chain(copy: Node, place: dict[Node, int]) -> tuple[list[Update], set[Node]] | None:
    given, last = copy.args[0], copy.args[1]
    if not isinstance(given, Node) or not isinstance(last, Node) or given.op != "placeholder":
        return None
    if _metadata(given) != _metadata(last):
        return None
    chain: list[Update] = []
    gone: set[Node] = set()
    node, ignored = last, copy
    while node is not given:
        if node.op != "call_function" or node.target not in _WRITES or not isinstance(node.args[0], Node):
            return None
        base = node.args[0]
        inner = _inner(node, base)
        inside = inner[1] if inner is not None else set()
        # Who reads what the update leaves, and what was there before it.
        if _escapes(node, {ignored, *inside}):
            return None
        before = []
        for reader in _readers(base, {node, copy, *inside}):
            if place[reader] > place[node] or reader.op == "output":
                return None
            before.append(reader)
        for source in _deepest(node, inner[0] if inner is not None else None):
            if _views(source, given) or _views(source, base):
                return None
        gone |= {one for one in inside if one.target in _WRITES}
        chain.append(Update(node, given, before, inner[0] if inner is not None else None))
        node, ignored = base, node
    chain.reverse()
    return chain, gone


def _metadata(node: Node) -> Any:
    value = node.meta["val"]
    return tuple(value.shape), value.dtype, value.device


def _deepest(node: Node, inner: Update | None) -> list[Node]:
    """The node whose elements the update writes, in a list."""
    while inner is not None:
        node, inner = inner.node, inner.inner
    source = node.args[_WRITES[node.target]]
    return [source] if isinstance(source, Node) else []


def _inner(node: Node, base: Node) -> tuple[Update, set[Node]] | None:
    """The update whose result is written back to where its operand was taken from, and the nodes of it."""
    view = _VIEWED.get(node.target)
    source = node.args[1] if view is not None else None
    if not isinstance(source, Node) or source.target not in _WRITES or len(source.users) != 1:
        return None
    part = source.args[0]
    if not isinstance(part, Node) or part.target is not view or part.args[0] is not base:
        return None
    if _arguments(part, 1) != _arguments(node, 2) or set(part.users) - {source} - _writers(source, part):
        return None
    deeper = _inner(source, part)
    more = deeper[1] if deeper is not None else set()
    return Update(source, part, [], deeper[0] if deeper is not None else None), {source, part, *more}


def _writers(source: Node, part: Node) -> set[Node]:
    """Views of the part that only inner updates use."""
    return {user for user in part.users if user.target in VIEWS and all(one.target in _WRITES for one in user.users)}


def _arguments(node: Node, skip: int) -> tuple[Any, ...]:
    names = ("dim", "start", "end", "step") if node.target in (aten.slice.Tensor, aten.slice_scatter.default) else ("dim", "index")
    defaults = {"dim": 0, "start": None, "end": None, "step": 1, "index": None}
    given = list(node.args[skip:])
    found = []
    for i, name in enumerate(names):
        found.append(given[i] if i < len(given) else node.kwargs.get(name, defaults[name]))
    if len(found) == 4:
        found[1] = found[1] or 0
    return tuple(found)


def _readers(node: Node, without: set[Node]) -> list[Node]:
    """The nodes that read the elements of a node, directly or through views."""
    found: list[Node] = []
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if user in without:
            continue
        if user.op == "call_function" and user.target in VIEWS:
            stack += user.users
        else:
            found.append(user)
    return found


def _escapes(node: Node, without: set[Node]) -> bool:
    """Whether the caller gets the elements as a tensor of its own."""
    return any(one.op == "output" for one in _readers(node, without))


def _views(node: Node, base: Node) -> bool:
    """Whether a node is a view of another."""
    while True:
        if node is base:
            return True
        if node.op != "call_function" or node.target not in VIEWS or not isinstance(node.args[0], Node):
            return False
        node = node.args[0]
