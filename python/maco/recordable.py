"""Which of torch's ops are written down, and what they give.

An op is if it can run later, together with others, and nobody sees the difference: if its schema says what it changes, and the shapes of
its results follow from those of its operands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from .segment import Layout, Ref, frozen, replaced

__all__ = ["ORDINARY", "Kind", "Result", "changed_by", "drops", "kind_of", "looks", "ordinary", "shapes_of"]

MOST_SHAPES = 4096
"""Of how many calls of ops the shapes of results are kept."""


# By parts of their names: ops that change what their schema doesn't say, or whose results have other memory than others'.
_NEVER = (
    "batch_norm",
    "cudnn",
    "miopen",
    "rnn",
    "lstm",
    "gru",
    "resize",
    "set_",
    "_sparse",
    "_nested",
    "_foreach",
    "_fused_adam",
    "_fused_sgd",
    "_amp_",
    "quantize",
)
_ATTENTION = "_scaled_dot_product_"
# What looks at no element of its operands.
_SHAPE_ONLY = {"empty_like", "new_empty", "new_empty_strided", "rand_like", "randn_like", "randint_like"}


class Kind:
    """What is known of an op."""

    __slots__ = ("attention", "changes", "collective", "deferred", "local", "returns", "schema", "shape_only", "view")

    def __init__(self, func: Any) -> None:
        schema = self.schema = getattr(func, "_schema", None)
        self.attention = False
        self.collective = False
        self.local = False  # whether all that it does is to its operands and results
        self.shape_only = False
        self.deferred = False
        self.view = False
        self.changes: list[tuple[int, str]] = []  # positions and names of operands that it changes
        self.returns = 0
        if schema is None:
            return
        space, _, name = schema.name.partition("::")
        self.local = space in ("aten", "prims")
        self.collective = space in ("maco", "_c10d_functional")
        self.shape_only = self.local and name in _SHAPE_ONLY
        self.view = func.is_view
        written = [one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write]
        self.changes = [(i, one.name) for i, one in enumerate(schema.arguments) if one in written]
        self.returns = len(schema.returns)
        tags = set(func.tags)
        self.attention = attention = name.startswith(_ATTENTION) and "backward" not in name
        bad = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
        self.deferred = (
            space in ("aten", "prims", "maco", "_c10d_functional")
            and self.returns > 0
            and (attention or (all(str(one.type) in ("Tensor", "List[Tensor]") for one in schema.returns) and not tags & bad))
            and not any(one in name for one in _NEVER)
            and schema.overload_name != "dtype"  # bits taken for another type
            and not any(one.kwarg_only or str(one.type) != "Tensor" for one in written)
        )


_kinds: dict[Any, Kind] = {}


def kind_of(func: Any) -> Kind:
    found = _kinds.get(func)
    if found is None:
        found = _kinds[func] = Kind(func)
    return found


ORDINARY = (torch.Tensor, torch.nn.Parameter)


def ordinary(tensor: Any) -> bool:
    return (
        type(tensor) in ORDINARY
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not tensor.dtype.is_complex
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


# What looks at a tensor's memory behind the dispatcher's back.
_LOOKS = {
    "numpy", "tolist", "data_ptr", "item", "untyped_storage", "storage", "_typed_storage", "share_memory_", "__array__", "__dlpack__",
    "__reduce_ex__", "__reduce__", "__deepcopy__", "__repr__", "__str__", "__format__", "apply_", "map_", "map2_", "to_dlpack",
    "_to_dlpack", "pin_memory", "is_set_to", "set_", "resize_", "__bool__", "__int__", "__float__", "__index__", "__complex__",
    "__setstate__", "__cuda_array_interface__",
}  # fmt: skip


def looks(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "") in ("__cuda_array_interface__",) or isinstance(
            getattr(func, "__self__", None), property
        )
    if name == "__set__":
        return getattr(getattr(func, "__self__", None), "__name__", "") == "data"
    return name in _LOOKS


def changed_by(kind: Kind, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an op changes, also by `out=` and in lists."""
    found: list[torch.Tensor] = []
    for at, name in kind.changes:
        value = args[at] if at < len(args) else kwargs.get(name)
        found += [one for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, torch.Tensor)]
    return found


def drops(schema: Any, args: Any, kwargs: Any) -> bool:
    for i, one in enumerate(schema.arguments):
        if one.name == "dropout_p":
            value = kwargs.get("dropout_p", args[i] if i < len(args) else one.default_value)
            return bool(value)
    return True


class Result:
    """A tensor that an op gives: its shape, strides and dtype."""

    __slots__ = ("layout",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layout: Layout = tuple(tensor.shape), tensor.stride(), tensor.dtype


_known_shapes: OrderedDict[Any, Any] = OrderedDict()


def shapes_of(func: Any, args: Any, kwargs: Any, layouts: Sequence[Layout]) -> tuple[Any, ...] | None:
    """What an op gives: the class of the list in which results are (None of one by itself), then each result.

    None: the op refuses its operands, or doesn't say before it runs.
    """
    try:
        key = func, frozen(replaced(args, lambda ref: layouts[ref.number])), frozen(replaced(kwargs, lambda ref: layouts[ref.number]))
    except TypeError:
        return None
    found = _known_shapes.get(key)
    if found is not None:
        return tuple(found)

    def meta(ref: Ref) -> torch.Tensor:
        shape, strides, dtype = layouts[ref.number]
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")

    told = replaced(kwargs, meta)
    if told.get("device") is not None:
        told["device"] = torch.device("meta")
    try:
        results = func(*replaced(args, meta), **told)
    except (NotImplementedError, RuntimeError):
        return None
    listed = isinstance(results, (list, tuple))
    made = [Result(one) if isinstance(one, torch.Tensor) else one for one in (results if listed else [results])]
    _known_shapes[key] = found = (tuple if isinstance(results, tuple) else list) if listed else None, *made
    while len(_known_shapes) > MOST_SHAPES:
        _known_shapes.popitem(last=False)
    return found
