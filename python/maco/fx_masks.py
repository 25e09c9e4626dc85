"""Masks of attention: what they leave to be seen, if that is known when a graph is compiled or follows from one number of a launch."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["constant", "mask_kind", "seen_kind", "seen_up_to"]

aten = torch.ops.aten

HIDDEN = torch.finfo(torch.float16).min
"""Keys whose score this, or less, is added to aren't seen: torch masks with it for types that go lower, too. Their weight is 0 in f32."""

MOST_NODES = 64
"""Masks that more ops make aren't looked into."""

_COMPARISONS = {getattr(getattr(aten, name), overload) for name in ("le", "lt", "ge", "gt") for overload in ("Tensor", "Scalar")}
# Views that may stand between the number and the comparison, and between the comparison and the mask: each element of their result follows
# from one element of their operand.
_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.expand.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.alias.default,
    aten.clone.default,
    aten._to_copy.default,
    torch.ops.prims.convert_element_type.default,
}
_BEFORE = _VIEWS | {aten.add.Tensor, aten.sub.Tensor}
_BEHIND = _VIEWS | {
    aten.constant_pad_nd.default,
    aten.mul.Tensor,
    aten.add.Tensor,
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    aten.where.Scalar,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.logical_not.default,
    aten.bitwise_not.default,
    aten.logical_and.default,
    aten.bitwise_and.Tensor,
}


def mask_kind(mask: Any, queries: Any, keys: Any) -> str | None:
    """Which keys a mask that depends on no input leaves: "causal" or "all"; None: others, or the mask isn't known."""
    with _disable_current_modes():
        value = constant(mask)
        return None if value is None else _kind(value, queries, keys)


def seen_up_to(mask: Any, queries: Any, keys: Any) -> Node | None:
    """The number of one element that says up to which key one query sees, that key included; None: the mask is something else."""
    if not isinstance(mask, Node) or queries != 1 or not isinstance(keys, int):
        return None
    found = _made_of(mask)
    inputs = [one for one in found or [] if one.op == "placeholder"]
    if found is None or len(inputs) != 1:
        return None
    at = inputs[0]
    value = at.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int64, torch.int32) or value.numel() != 1:
        return None
    if not _compared(mask, at, found, keys):
        return None
    # Each key is compared with the number, so that a few numbers tell how.
    with _disable_current_modes(), torch.no_grad():
        for number in {0, 1, keys // 2, keys - 1}:
            made = _evaluated(mask, found, {at: torch.full(tuple(value.shape), number, dtype=value.dtype, device=value.device)})
            seen = None if made is None else _seen(made)
            if seen is None or seen.dim() < 1 or seen.shape[-1] != keys:
                return None
            # The same for all heads.
            rows = seen.reshape(-1, keys).cpu()
            if not torch.equal(rows, (torch.arange(keys) <= number).expand_as(rows)):
                return None
    return at


def seen_kind(seen: torch.Tensor, queries: Any, keys: Any) -> str | None:
    """The same as `mask_kind` of which keys are seen, [..., queries, keys]."""
    if not isinstance(queries, int) or not isinstance(keys, int) or seen.dim() < 2:
        return None
    with _disable_current_modes():
        seen = seen.reshape(-1, *seen.shape[-2:])
        # Often the same for all heads, by strides of 0.
        seen = (seen[:1] if seen.stride(0) == 0 else seen).expand(-1, queries, keys).cpu()
        if bool(seen.all()):
            return "all"
        return "causal" if bool((seen == torch.ones(queries, keys, dtype=torch.bool).tril()).all()) else None


def constant(node: Any) -> torch.Tensor | None:
    """The value of what depends on no input."""
    if not isinstance(node, Node):
        return None
    found = _made_of(node)
    if found is None or any(one.op == "placeholder" for one in found):
        return None
    return _evaluated(node, found, {})


def _kind(value: torch.Tensor, queries: Any, keys: Any) -> str | None:
    seen = _seen(value)
    return None if seen is None else seen_kind(seen, queries, keys)


def _seen(value: torch.Tensor) -> torch.Tensor | None:
    """Which keys a mask, of truth values or to be added, leaves; None: it changes scores otherwise."""
    if value.dtype is torch.bool:
        return value
    if not value.is_floating_point():
        return None
    low = value <= max(torch.finfo(value.dtype).min / 2, HIDDEN)
    return ~low if bool((low | (value == 0)).all()) else None


def _made_of(node: Node) -> list[Node] | None:
    """The node and all nodes it depends on, inputs too; None if they are too many, or one is random or changes something."""
    order: list[Node] = []
    stack, seen = [node], set()
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        if one.op != "placeholder":
            if one.op != "call_function" or not isinstance(one.target, torch._ops.OpOverload) or one.target._schema.is_mutable:
                return None
            if torch.Tag.nondeterministic_seeded in one.target.tags or len(seen) > MOST_NODES:
                return None
        order.append(one)
        stack += one.all_input_nodes
    places = {one: i for i, one in enumerate(node.graph.nodes)}
    return sorted(order, key=places.__getitem__)


def _evaluated(node: Node, made_of: list[Node], values: dict[Node, Any]) -> torch.Tensor | None:
    try:
        with _disable_current_modes(), torch.no_grad():
            for one in made_of:
                if one not in values:
                    args, kwargs = torch.fx.node.map_arg((one.args, one.kwargs), values.__getitem__)
                    values[one] = one.target(*args, **kwargs)  # type: ignore[operator]
    except (RuntimeError, TypeError, ValueError, KeyError):
        return None
    found = values[node]
    return found if isinstance(found, torch.Tensor) else None


def _compared(mask: Node, at: Node, made_of: list[Node], keys: int) -> bool:
    """Whether the number is only compared with the numbers of keys, once, and what comes of that is the mask, key by key."""
    depends = {at}
    behind: set[Node] = set()
    comparison: Node | None = None
    for node in made_of:
        if node is at or not depends & set(node.all_input_nodes):
            continue
        depends.add(node)
        if node.target in _COMPARISONS:
            if comparison is not None or behind & set(node.all_input_nodes):
                return False
            comparison = node
            behind.add(node)
        elif behind & set(node.all_input_nodes):
            if node.target not in _BEHIND or sum(one in behind for one in node.all_input_nodes) != 1:
                return False
            behind.add(node)
        elif node.target not in _BEFORE:
            return False
    if comparison is None or mask not in behind:
        return False
    others = [one for one in comparison.args[:2] if one not in depends]
    numbers = constant(others[0]) if len(others) == 1 else None
    with _disable_current_modes():
        return numbers is not None and torch.equal(numbers.reshape(-1).cpu().long(), torch.arange(keys))
