"""Why MACO lacks an op of torch's, where there is more to say than that it does."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

__all__ = ["unknown"]


def unknown(node: Node) -> str:
    """The reason why an op that MACO has no lowering for is left to torch."""
    name = str(getattr(node.target, "_schema", node.target)).partition("(")[0]
    if "scaled_dot_product" in name or "attention" in name.lower():
        return _attention(node, name)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "MACO has no random numbers"
    return "MACO has no such op"


def _attention(node: Node, name: str) -> str:
    if "backward" in name:
        return "the gradient of attention, which MACO hasn't"
    given = _arguments(node)
    if given.get("dropout_p"):
        return "attention with dropout: MACO has no random numbers"
    if any(user.target is operator.getitem and user.args[1] != 0 and user.users for user in node.users):
        return "attention whose gradient is wanted, which MACO hasn't; under torch.no_grad() it has the attention itself"
    if given.get("attn_mask") is not None or given.get("attn_bias") is not None:
        return (
            "attention with a mask that doesn't just say how far rows see: MACO's sees all keys, those up to a row's own, or up to a "
            "position"
        )
    scale = given.get("scale")
    if isinstance(scale, Node):
        return "attention whose scale is known only at run time"
    return "MACO has no attention of this kind"


def _arguments(node: Node) -> dict[str, Any]:
    """The op's arguments by name."""
    schema = getattr(node.target, "_schema", None)
    names = [one.name for one in schema.arguments] if schema is not None else []
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
