"""Collectives as torch operators, `torch.ops.maco.*`, which Dynamo, make_fx and AOT autograd trace.

Each gives a new contiguous tensor and leaves its operand as it is. All ranks of the group call them in one order, with equal shapes,
dtypes and words. `group` is a Group's name, "" the default group. `reduce` is "sum", "mean", "max", "min" ("avg" is "mean"), and what
torch.distributed has besides ("prod", "band", "bor", "bxor"). `attributes` is the JSON of a map of the op's attributes in a graph, ""
of none.

Gradients are those of losses that ranks compute each for itself and that add up, but for `all_reduce`: its gradient is the identity (of
"mean" a division), that of a result which all ranks go on with alike (Megatron's g; f is `copy_to_ranks`).
"""

from __future__ import annotations

from typing import Any

import torch

from . import eager, groups

__all__ = ["copy_to_ranks"]

_lib = torch.library.Library("maco", "FRAGMENT")

_DEFINITIONS = {
    "all_reduce": "(Tensor x, str reduce, str group, str attributes) -> Tensor",
    "all_gather": "(Tensor x, str group, str attributes) -> Tensor",
    "reduce_scatter": "(Tensor x, str reduce, str group, str attributes) -> Tensor",
    "all_to_all": "(Tensor x, str group, str attributes) -> Tensor",
    "broadcast": "(Tensor x, int root, str group, str attributes) -> Tensor",
    "shift": "(Tensor x, int by, str group, str attributes) -> Tensor",
    # Not a collective: x on one rank, zeros on the others, so that traces of all ranks are alike.
    "only_on": "(Tensor x, int rank, str group) -> Tensor",
}


def _all_reduce(x: torch.Tensor, reduce: str, group: str, attributes: str) -> torch.Tensor:
    return eager.all_reduce(x, reduce, groups.find(group), attributes)


def _all_gather(x: torch.Tensor, group: str, attributes: str) -> torch.Tensor:
    return eager.all_gather(x, groups.find(group), attributes)


def _reduce_scatter(x: torch.Tensor, reduce: str, group: str, attributes: str) -> torch.Tensor:
    return eager.reduce_scatter(x, reduce, groups.find(group), attributes)


def _all_to_all(x: torch.Tensor, group: str, attributes: str) -> torch.Tensor:
    return eager.all_to_all(x, groups.find(group), attributes)


def _broadcast(x: torch.Tensor, root: int, group: str, attributes: str) -> torch.Tensor:
    return eager.broadcast(x, root, groups.find(group), attributes)


def _shift(x: torch.Tensor, by: int, group: str, attributes: str) -> torch.Tensor:
    return eager.shift(x, by, groups.find(group), attributes)


def _only_on(x: torch.Tensor, rank: int, group: str) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format) if groups.find(group).rank == rank else x.new_zeros(x.shape)


# ---- shapes


def _same_shape(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _gathered_shape(x: torch.Tensor, group: str, attributes: str) -> torch.Tensor:
    return x.new_empty((groups.size_of(group), *x.shape))


def _scattered_shape(x: torch.Tensor, reduce: str, group: str, attributes: str) -> torch.Tensor:
    size = groups.size_of(group)
    eager.check_parts(x, size, "reduce_scatter")
    return x.new_empty((x.shape[0] // size, *x.shape[1:]))


def _exchanged_shape(x: torch.Tensor, group: str, attributes: str) -> torch.Tensor:
    eager.check_parts(x, groups.size_of(group), "all_to_all")
    return x.new_empty(x.shape)


# ---- gradients


def _keep_words(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, *ctx.words = inputs


def _keep_extremes(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.words = inputs
    if ctx.words[0] in ("max", "min"):
        ctx.save_for_backward(x, output)


def _all_reduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    reduce, group, attributes = ctx.words
    if reduce in ("mean", "avg"):
        grad = grad / groups.size_of(group)
    elif reduce in ("max", "min"):
        # To the ranks that have the extreme, in equal parts.
        x, y = ctx.saved_tensors
        here = (x == y).to(grad.dtype)
        grad = grad * here / torch.ops.maco.all_reduce(here, "sum", group, attributes)
    elif reduce != "sum":
        raise NotImplementedError(f"an all-reduce by '{reduce}' has no gradient")
    return grad, None, None, None


def _all_gather_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    group, attributes = ctx.words
    return torch.ops.maco.reduce_scatter(grad, "sum", group, attributes).squeeze(0), None, None


def _reduce_scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    reduce, group, attributes = ctx.words
    if reduce not in ("sum", "mean", "avg"):
        raise NotImplementedError(f"a reduce-scatter by '{reduce}' has no gradient")
    if reduce != "sum":
        grad = grad / groups.size_of(group)
    return torch.ops.maco.all_gather(grad, group, attributes).flatten(0, 1), None, None, None


def _all_to_all_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    group, attributes = ctx.words
    return torch.ops.maco.all_to_all(grad, group, attributes), None, None


def _broadcast_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    root, group, attributes = ctx.words
    total = torch.ops.maco.all_reduce(grad, "sum", group, attributes)
    return torch.ops.maco.only_on(total, root, group), None, None, None


def _shift_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    by, group, attributes = ctx.words
    return torch.ops.maco.shift(grad, -by, group, attributes), None, None, None


def _only_on_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    rank, group = ctx.words
    return torch.ops.maco.only_on(grad, rank, group), None, None


def _define() -> None:
    for name, signature in _DEFINITIONS.items():
        _lib.define(name + signature, tags=(torch.Tag.pt2_compliant_tag,))
    for name, run in {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "broadcast": _broadcast,
        "shift": _shift,
        "only_on": _only_on,
    }.items():
        for key in ("CPU", "CUDA"):
            _lib.impl(name, run, key)
    for name, shape in {
        "all_reduce": _same_shape,
        "all_gather": _gathered_shape,
        "reduce_scatter": _scattered_shape,
        "all_to_all": _exchanged_shape,
        "broadcast": _same_shape,
        "shift": _same_shape,
        "only_on": _same_shape,
    }.items():
        torch.library.register_fake(f"maco::{name}", shape, lib=_lib)
    for name, backward in {
        "all_reduce": _all_reduce_backward,
        "all_gather": _all_gather_backward,
        "reduce_scatter": _reduce_scatter_backward,
        "all_to_all": _all_to_all_backward,
        "broadcast": _broadcast_backward,
        "shift": _shift_backward,
        "only_on": _only_on_backward,
    }.items():
        keep = _keep_extremes if name == "all_reduce" else _keep_words
        torch.library.register_autograd(f"maco::{name}", backward, setup_context=keep, lib=_lib)


_define()


class _CopyToRanks(torch.autograd.Function):
    """Identity, whose gradient is the all-reduce of what the ranks have: Megatron's f."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: str, attributes: str) -> torch.Tensor:
        ctx.words = group, attributes
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        group, attributes = ctx.words
        return torch.ops.maco.all_reduce(grad, "sum", group, attributes), None, None


def copy_to_ranks(x: torch.Tensor, group: str = "", attributes: str = "") -> torch.Tensor:
    """x itself, from which the ranks compute different parts: its gradient is the sum of the ranks' gradients (Megatron's f)."""
    return _CopyToRanks.apply(x, group, attributes)
