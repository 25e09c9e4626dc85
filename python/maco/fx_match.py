"""Patterns of several traced ops that are one op of MACO's: norms written out, rotary embeddings, and attention.

A match becomes a call of one of the functions here, which say in torch what they compute; `fx_rows` knows them as MACO's ops.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from . import fx_rotary
from .fx_masks import constant, mask_kind, seen_kind, seen_up_to

__all__ = ["attention", "inverse_rms", "matched", "rms_norm", "rotary"]

aten = torch.ops.aten


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float, dtype: torch.dtype) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, as `dtype`."""
    wide = x.float()
    found = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (found if weight is None else found * weight).to(dtype)


def inverse_rms(x: torch.Tensor, eps: float, dtype: torch.dtype) -> torch.Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last axis, which is kept."""
    return torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps).to(dtype)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    gqa: bool,
    dtype: torch.dtype,
    last: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(q k^T * scale) v of [..., heads, rows, head_dim]; with `causal` query i sees keys up to i, with `last` up to that."""
    mask = None if last is None else torch.arange(k.shape[-2], device=k.device)[None] <= last.reshape(1, 1)
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=gqa)
    return found.to(dtype)


def rotary(
    x: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    interleaved: bool,
    back: bool,
    dtype: torch.dtype,
    rows: torch.Tensor | None = None,
    varying: tuple[bool, ...] = (),
) -> torch.Tensor:
    """Pairs of x's last axis turned by angles (`back`: the other way), of which cosines and sines have a column each, or one an element.

    They are broadcast to x. With `varying` they are tables, a row for each place along the axes of x that it names; with `rows` these of
    their rows count.
    """
    if varying:
        places = [extent if varies else 1 for extent, varies in zip(x.shape, varying, strict=False)]
        cosines, sines = (one if rows is None else one[rows] for one in (cosines, sines))
        cosines, sines = (one.reshape(*places, one.shape[-1]) for one in (cosines, sines))
    wide, (c, s) = x.float(), (one.float() for one in (cosines, sines))
    half = x.shape[-1] // 2
    if c.shape[-1] == half:
        c, s = (one.repeat_interleave(2, -1) if interleaved else torch.cat((one, one), -1) for one in (c, s))
    a, b = (wide[..., ::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
    turned = torch.stack((-b, a), -1).flatten(-2) if interleaved else torch.cat((-b, a), -1)
    return (wide * c + turned * (-s if back else s)).to(dtype)


def matched(gm: GraphModule) -> GraphModule:
    """The graph with matches in place of their ops, or the graph itself."""
    targets = {node.target for node in gm.graph.nodes if node.op == "call_function"}
    if not targets & {aten.rsqrt.default, aten.copy.default, aten.cat.default, aten.stack.default, *_SOFTMAXES, *_ATTENTIONS}:
        return gm
    found = GraphModule(gm, _copied(gm))
    changed = False
    for node in list(found.graph.nodes):
        if node.op != "call_function" or node._erased:
            continue
        if node.target is aten.rsqrt.default:
            changed |= _norm(node)
        elif node.target is aten.copy.default:
            changed |= _whole_copy(node)
        elif node.target in (aten.cat.default, aten.stack.default):
            changed |= fx_rotary.found(node)
        elif node.target in _SOFTMAXES:
            changed |= _written_attention(node)
        elif node.target in _ATTENTIONS:
            changed |= _attention(node)
    if not changed:
        return gm
    found.graph.eliminate_dead_code()
    found.recompile()
    return found


def _copied(gm: GraphModule) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    values: dict[Node, Node] = {}
    output = graph.graph_copy(gm.graph, values)
    old = next(node for node in gm.graph.nodes if node.op == "output")
    made = graph.output(output)
    made.meta = copy.copy(old.meta)
    return graph


def _call(function: Callable[..., Any], args: tuple[Any, ...], like: Node, value: Any = None) -> Node:
    """A call in the place of `like`, with its meaning for whoever reads it."""
    with like.graph.inserting_before(like):
        made = like.graph.call_function(function, args)
    made.meta = {**like.meta, **({} if value is None else {"val": value})}
    return made


_RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default, aten.clone.default)


def _uncast(node: Any) -> Any:
    """`node` without conversions between float types."""
    while isinstance(node, Node) and node.op == "call_function" and node.target in _CASTS and _floats(node) and _floats(node.args[0]):
        node = node.args[0]
    return node


def _floats(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _whole_copy(node: Node) -> bool:
    """A copy to all of a tensor, as a change in place leaves it, without the tensor, of which it reads nothing."""
    source, scatters = node.args[1], (aten.slice_scatter.default, aten.select_scatter.default, aten.copy_.default)
    if len(node.args) > 2 or not isinstance(source, Node) or any(user.target in scatters for user in node.users):
        return False
    have, want = source.meta.get("val"), node.meta.get("val")
    if not isinstance(have, torch.Tensor) or not isinstance(want, torch.Tensor):
        return False
    if (have.dtype, have.device, have.shape, have.stride()) != (want.dtype, want.device, want.shape, want.stride()):
        return False
    node.replace_all_uses_with(_call(aten.clone.default, (source,), node))
    return True


# ---- x * rsqrt(mean(x^2) + eps) * weight -----------------------------------------------------------------------------------------------


def _norm(root: Node) -> bool:
    added = root.args[0]
    if not isinstance(added, Node) or added.target not in (aten.add.Tensor, aten.add.Scalar) or len(added.args) < 2 or added.kwargs:
        return False
    mean, eps = added.args[0], added.args[1]
    if not isinstance(eps, (int, float)):
        mean, eps = added.args[1], added.args[0]
    if not isinstance(eps, (int, float)) or eps < 0 or not isinstance(mean, Node) or mean.target is not aten.mean.dim:
        return False
    square = mean.args[0]
    if not isinstance(square, Node) or not _floats(square):
        return False
    rank = square.meta["val"].dim()
    axes = mean.args[1]
    if not rank or not isinstance(axes, (list, tuple)) or len(axes) != 1 or int(axes[0]) % rank != rank - 1:  # type: ignore[arg-type]
        return False
    if not (len(mean.args) > 2 and mean.args[2]) and not mean.kwargs.get("keepdim"):
        return False
    if (
        square.target is aten.pow.Tensor_Scalar
        and square.args[1] == 2
        or square.target is aten.square.default
        or square.target is aten.mul.Tensor
        and square.args[0] is square.args[1]
    ):
        x = square.args[0]
    else:
        return False
    done = False
    for product in list(root.users):
        if product.target is aten.mul.Tensor and _floats(product):
            other = product.args[1] if product.args[0] is root else product.args[0]
            if isinstance(other, Node) and _uncast(other) is _uncast(x) and other.meta["val"].shape == product.meta["val"].shape:
                _replace_norm(product, _uncast(x), float(eps))
                done = True
    if done and any(user.op == "output" or user.target is not aten.mul.Tensor or _live(user) for user in root.users):
        made = _call(inverse_rms, (_uncast(x), float(eps), root.meta["val"].dtype), root)
        root.replace_all_uses_with(made)
    return done


def _live(node: Node) -> bool:
    return bool(node.users)


def _replace_norm(product: Node, x: Node, eps: float) -> None:
    """The product, and that with a weight behind it, as a norm."""
    last: Node = product
    while (user := _only_user(last)) is not None and user.target in _CASTS and _floats(user):
        last = user
    weighted, weight = _only_user(last), None
    if weighted is not None and weighted.target is aten.mul.Tensor and _floats(weighted):
        other = weighted.args[1] if weighted.args[0] is last else weighted.args[0]
        fits = isinstance(other, Node) and other is not last and _floats(other)
        if (
            fits
            and tuple(other.meta["val"].shape) == (last.meta["val"].shape[-1],)
            and weighted.meta["val"].shape == last.meta["val"].shape
        ):
            weight, last = other, weighted
    made = _call(rms_norm, (x, weight, eps, last.meta["val"].dtype), last)
    last.replace_all_uses_with(made)


# ---- attention -------------------------------------------------------------------------------------------------------------------------

_SOFTMAXES = (aten._softmax.default, aten._safe_softmax.default)
_ATTENTIONS = {
    aten.scaled_dot_product_attention.default: (3, 4, 5),
    aten._scaled_dot_product_flash_attention_for_cpu.default: (None, 3, 4),
    aten._scaled_dot_product_flash_attention.default: (None, 3, 4),
    aten._scaled_dot_product_efficient_attention.default: (3, 5, 6),
    aten._scaled_dot_product_cudnn_attention.default: (3, 5, 6),
    aten._scaled_dot_product_attention_math.default: (3, 4, 5),
}


def _argument(node: Node, position: int | None, name: str, default: Any) -> Any:
    if position is not None and len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def _attention(node: Node) -> bool:
    """Fused attention of torch's, of which only the result is read."""
    mask_at, dropout_at, causal_at = _ATTENTIONS[node.target]
    mask = _argument(node, mask_at, "attn_mask", node.kwargs.get("attn_bias"))
    causal = bool(_argument(node, causal_at, "is_causal", False))
    dropout, scale = _argument(node, dropout_at, "dropout_p", 0.0), node.kwargs.get("scale")
    if dropout or not isinstance(scale, (int, float, type(None))):
        return False
    result = node
    if isinstance(node.meta["val"], (list, tuple)):
        used = [user for user in node.users if user.users]
        if len(used) != 1 or used[0].args[1] != 0:
            return False
        result = used[0]
    q, k, v = node.args[:3]
    assert isinstance(q, Node) and isinstance(k, Node) and isinstance(v, Node)
    last = None
    if mask is not None:
        kind = mask_kind(mask, q.meta["val"].shape[-2], k.meta["val"].shape[-2])
        last = seen_up_to(mask, q.meta["val"].shape[-2], k.meta["val"].shape[-2]) if kind is None else None
        if (kind is None and last is None) or causal:
            return False
        causal = kind == "causal"
    _replace_attention(result, q, k, v, causal, scale, last)
    # torch counts them among the random ones, which it doesn't drop.
    for one in (*node.users, node):
        if not one.users:
            node.graph.erase_node(one)
    return True


def _replace_attention(result: Node, q: Node, k: Node, v: Node, causal: bool, scale: float | None, last: Node | None = None) -> bool:
    keys, times = _unrepeated(k)
    values, also = _unrepeated(v)
    if times != also:
        keys, values = k, v
    heads = q.meta["val"].dim() >= 3
    gqa = bool(heads and q.meta["val"].shape[-3] != keys.meta["val"].shape[-3])
    more = () if last is None else (last,)
    made = _call(attention, (q, keys, values, causal, scale, gqa, result.meta["val"].dtype, *more), result)
    result.replace_all_uses_with(made)
    return True


def _unrepeated(node: Node) -> tuple[Node, int]:
    """Keys or values before each head was repeated, and how often it is."""
    seen = node
    while seen.op == "call_function" and seen.target in (
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.clone.default,
    ):
        seen = seen.args[0]  # type: ignore[assignment]
    if seen.op != "call_function" or seen.target is not aten.expand.default or not isinstance(seen.args[0], Node):
        return node, 1
    wide, narrow = tuple(seen.meta["val"].shape), tuple(seen.args[0].meta["val"].shape)
    want = tuple(node.meta["val"].shape)
    if len(wide) != 5 or len(narrow) != 5 or narrow[2] != 1 or len(want) != 4:
        return node, 1
    if (wide[0], wide[1], wide[3], wide[4]) != (narrow[0], narrow[1], narrow[3], narrow[4]) or want != (
        wide[0],
        wide[1] * wide[2],
        *wide[3:],
    ):
        return node, 1
    base = seen.args[0]
    if base.target is aten.unsqueeze.default and isinstance(base.args[0], Node) and base.args[1] == 2:
        return base.args[0], int(wide[2])
    return node, 1


_VIEWED = (*_RESHAPES, aten.expand.default, aten.clone.default, aten.alias.default)


def _written_attention(softmax: Node) -> bool:
    """softmax(q k^T * scale + mask) v, written out."""
    rank = softmax.meta["val"].dim()
    if not rank or int(softmax.args[1]) % rank != rank - 1:  # type: ignore[arg-type]
        return False
    node: Any = softmax.args[0]
    scale, kind = 1.0, "all"
    queries, keys = softmax.meta["val"].shape[-2:] if rank > 1 else (None, None)
    while isinstance(node, Node) and node.op == "call_function" and node.target is not aten.bmm.default:
        if node.target in _CASTS or node.target in _VIEWED:
            if node.meta["val"].shape[-2:] != softmax.meta["val"].shape[-2:]:
                return False
            node = node.args[0]
        elif node.target in (aten.mul.Tensor, aten.mul.Scalar) and isinstance(node.args[1], (int, float)):
            scale *= node.args[1]
            node = node.args[0]
        elif node.target in (aten.div.Tensor, aten.div.Scalar) and isinstance(node.args[1], (int, float)) and node.args[1]:
            scale /= node.args[1]
            node = node.args[0]
        elif node.target is aten.add.Tensor and not node.kwargs and kind == "all" and scale >= 1:
            found = mask_kind(node.args[1], queries, keys)  # type: ignore[arg-type]
            if found is None:
                return False
            kind, node = found, node.args[0]
        elif node.target is aten.masked_fill.Scalar and kind == "all" and _lowest(node.args[2], scale):
            hidden = constant(node.args[1])
            with _disable_current_modes():
                found = None if hidden is None or hidden.dtype is not torch.bool else seen_kind(~hidden, queries, keys)
            if found is None:
                return False
            kind, node = found, node.args[0]
        else:
            return False
    if not isinstance(node, Node) or node.op != "call_function" or node.target is not aten.bmm.default:
        return False
    if not math.isfinite(scale) or scale <= 0 or node.meta["val"].numel() != softmax.meta["val"].numel():
        return False
    first, last = node, softmax
    while (user := _only_user(last)) is not None and (user.target in _CASTS or user.target in _VIEWED):
        if user.meta["val"].shape[-2:] != softmax.meta["val"].shape[-2:]:
            return False
        last = user
    second = _only_user(last)
    if second is None or second.target is not aten.bmm.default or second.args[0] is not last:
        return False
    q, turned, v = first.args[0], first.args[1], second.args[1]
    if q.meta["val"].shape[0] != v.meta["val"].shape[0] or v.meta["val"].shape[2] != q.meta["val"].shape[2]:  # type: ignore[union-attr]
        return False
    k = _call(aten.permute.default, (turned, [0, 2, 1]), second, turned.meta["val"].permute(0, 2, 1))  # type: ignore[union-attr]
    return _replace_attention(second, q, k, v, kind == "causal", scale)  # type: ignore[arg-type]


def _lowest(number: Any, scale: float) -> bool:
    return isinstance(number, (int, float)) and number * scale < -1e4
