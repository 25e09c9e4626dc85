"""Collectives among traced ops: `torch.ops.maco.*`, and torch's functional collectives, each with the wait behind it as one op."""

from __future__ import annotations

import json
from typing import Any

from torch.fx import Node

from . import groups
from .dtypes import DType
from .errors import Error
from .fx_lower import FLOATS, NAMED, Dense, Lowering, Ref, Unsupported, common_of, extents, operand_of, product, result_of, static

__all__ = ["group_of", "is_collective"]

REDUCES = {"sum": "sum", "max": "max", "min": "min", "avg": "avg", "mean": "avg"}
ATTRIBUTES = ("algorithm", "priority", "overlap_group", "overlap", "phase")

# Names of ops with the place of the group's name among the arguments.
_OWN = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 2, "all_to_all": 1, "broadcast": 2, "shift": 2, "only_on": 2}
_TORCH = {"all_reduce": 2, "all_gather_into_tensor": 2, "reduce_scatter_tensor": 3, "all_to_all_single": 3, "broadcast": 2}


_WAITS = ("_c10d_functional.wait_tensor.default", "_c10d_functional_autograd.wait_tensor.default")


def _kind(node: Node) -> tuple[str, str]:
    """Library and name of a collective; two empty texts of what is none."""
    text = str(node.target)
    library, _, rest = text.partition(".")
    name = rest.split(".")[0]
    if library == "maco" and name in _OWN:
        return "maco", name
    if library in ("_c10d_functional", "_c10d_functional_autograd") and name in _TORCH:
        return "torch", name
    return "", ""


def is_collective(node: Node) -> bool:
    """Whether all ranks of a group have to run it."""
    return bool(_kind(node)[0]) or str(node.target) in _WAITS


def group_of(node: Node) -> Any:
    """The group of a collective; None of what is none. Raises Unsupported where MACO has none for it."""
    library, name = _kind(node)
    if not library:
        return None
    word = operand_of(node, (_OWN if library == "maco" else _TORCH)[name], "group" if library == "maco" else "group_name")
    if not isinstance(word, str):
        raise Unsupported("a collective whose group isn't known when compiling")
    try:
        if library == "maco":
            return groups.find(word)
        from torch.distributed.distributed_c10d import _resolve_process_group

        return groups.of(_resolve_process_group(word))  # type: ignore[arg-type]
    except (Error, RuntimeError, ValueError, KeyError) as error:
        raise Unsupported(f"the group '{word}': {error}") from None


def _told(lo: Lowering, node: Node, position: int) -> dict[str, Any]:
    """The op's attributes, which are given as JSON."""
    text = operand_of(node, position, "attributes") or ""
    found = json.loads(text) if text else {}
    if unknown := [key for key in found if key not in ATTRIBUTES]:
        raise Unsupported(f"the attribute '{unknown[0]}'")
    if lo.name:
        found["name"] = lo.name
        lo.name = ""
    return dict(found)


def _reduce(node: Node, dtype: DType) -> Any:
    word = str(operand_of(node, 1, "reduce"))
    if word not in REDUCES:
        raise Unsupported(f"a reduction by '{word}': MACO has sum, max, min and avg")
    if REDUCES[word] == "avg" and dtype not in FLOATS:
        raise Unsupported(f"the average of {dtype}")
    return REDUCES[word]


def _blocks(ref: Ref) -> tuple[Any, ...]:
    """The shape in which axis 0 is the logical one."""
    if not ref.shape:
        return (1,)
    return (ref.shape[0], product(ref.shape[1:])) if len(ref.shape) > 1 else ref.shape


def _cut(ref: Ref, world: int, what: str) -> None:
    if not ref.shape or not isinstance(ref.shape[0], int) or ref.shape[0] % world:
        raise Unsupported(f"{what} of a tensor whose axis 0 isn't a multiple of the number of ranks")


def _collective(lo: Lowering, node: Node) -> Any:
    library, name = _kind(node)
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    if x.dtype is not dtype:
        raise Unsupported("a collective that converts")
    own = library == "maco"
    graph, world = lo.graph, lo.world
    dense = lo.dense(x)
    if name == "all_reduce":
        reduce = _reduce(node, dtype)
        return Dense(graph.allreduce(dense.value, reduce, **_told(lo, node, 3 if own else 99)), dense.form, shape, dtype)
    if name == "broadcast":
        root = int(node.args[1])  # type: ignore[arg-type]
        return Dense(graph.broadcast(dense.value, root=root, **_told(lo, node, 3 if own else 99)), dense.form, shape, dtype)
    if name == "shift":
        by = int(node.args[1])  # type: ignore[arg-type]
        return Dense(graph.ring_shift(dense.value, by, **_told(lo, node, 3)), dense.form, shape, dtype)
    form = _blocks(x)
    value = lo.shaped(x, form)
    if name in ("all_gather", "all_gather_into_tensor"):
        if not own and int(node.args[1]) != world:  # type: ignore[arg-type]
            raise Unsupported("a group of another size")
        result = graph.allgather(value, **_told(lo, node, 2 if own else 99))
        return Dense(result, (form[0] * world, *form[1:]), shape, dtype)
    if name in ("reduce_scatter", "reduce_scatter_tensor"):
        _cut(x, world, "a reduce-scatter")
        result = graph.reduce_scatter(value, _reduce(node, dtype), **_told(lo, node, 3 if own else 99))
        return Dense(result, (form[0] // world, *form[1:]), shape, dtype)
    _cut(x, world, "an all-to-all")
    if not own:
        for sizes in node.args[1:3]:
            if len(extents(sizes)) and len(set(extents(sizes))) != 1:  # type: ignore[arg-type]
                raise Unsupported("an all-to-all of uneven parts")
    return Dense(graph.alltoall(value, **_told(lo, node, 2 if own else 99)), form, shape, dtype)


def _only_on(lo: Lowering, node: Node) -> Any:
    """A message to itself: ranks that take no part have zeros."""
    shape, dtype = result_of(node)
    x = lo.ref(node.args[0])
    if x.dtype is not dtype:
        raise Unsupported("a result of another dtype")
    dense, rank = lo.dense(x), int(node.args[1])  # type: ignore[arg-type]
    static(dense.form)
    here = lo.graph.rank == rank
    lo.graph.send(dense.value, dst=rank, if_=here)
    value = lo.graph.recv(src=rank, shape=list(dense.form), if_=here, **common_of(lo, dtype))
    return Dense(value, dense.form, shape, dtype)


def _wait(lo: Lowering, node: Node) -> Any:
    source = node.args[0]
    found = lo.refs.get(source)  # type: ignore[arg-type]
    if found is None or not isinstance(source, Node) or not _kind(source)[0]:
        raise Unsupported("its collective runs in torch")
    return found


for _name in _OWN:
    NAMED[f"maco.{_name}.default"] = _only_on if _name == "only_on" else _collective
for _name in _TORCH:
    for _library in ("_c10d_functional", "_c10d_functional_autograd"):
        NAMED[f"{_library}.{_name}.default"] = _collective
NAMED.update(dict.fromkeys(_WAITS, _wait))
