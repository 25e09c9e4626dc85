"""Ops that were written down, with the tensors that they read, change and make, and the ATen graph that they are."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Call", "Made", "Ref", "Segment", "Unknown", "frozen", "replaced"]

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides and dtype."""

Place = tuple[Any, ...]
"""A storage's identity, offset, shape, strides, dtype, and whether elements are negated: which elements of which memory a tensor is."""


def place_of(tensor: torch.Tensor) -> Place:
    """Where a tensor is."""
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.is_neg(),
    )


class Ref:
    """A tensor of a segment by its number, among arguments."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.number == self.number

    def __hash__(self) -> int:
        return hash((Ref, self.number))

    def __repr__(self) -> str:
        return f"%{self.number}"


class Call:
    """An op: its arguments with tensors by number, and the numbers of its results (None of what is no tensor), maybe in a list."""

    __slots__ = ("args", "changes", "func", "kwargs", "listed", "results")

    def __init__(
        self, func: Any, args: Any, kwargs: Any, results: list[int | None], *, listed: bool = False, changes: bool = False
    ) -> None:
        self.func, self.args, self.kwargs, self.results, self.listed, self.changes = func, args, kwargs, results, listed, changes

    @property
    def key(self) -> Any:
        """Equal for calls of one op with equal arguments."""
        return self.func, frozen(self.args), frozen(self.kwargs), tuple(self.results)


class Made:
    """Memory that the segment's tensor `number` fills when the segment runs."""

    __slots__ = ("layout", "number", "weak")

    def __init__(self, storage: Any, layout: Layout, number: int) -> None:
        self.number, self.layout = number, layout
        self.weak = StorageWeakRef(storage)

    def tensor(self, device: torch.device) -> torch.Tensor | None:
        """The memory as a tensor; None if nothing refers to it any more."""
        if self.weak.expired():
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
        if storage is None:
            return None
        shape, strides, dtype = self.layout
        return torch.empty(0, dtype=dtype, device=device).set_(storage, 0, shape, strides)


class Unknown(Exception):
    """A tensor shares memory with what is written down, in a way that isn't."""


class Segment:
    """Ops in a row that run together.

    Tensors are known by where they are, not as objects: autograd puts others in the place of those that it is given.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inputs: list[torch.Tensor] = []
        self.input_numbers: list[int] = []
        self.parameters: list[tuple[int, int]] = []  # inputs that are parameters of a module: which, and their storage
        self.numbers: dict[Place, int] = {}
        self.layouts: list[Layout] = []  # by number
        self.made: dict[int, Made] = {}  # by storage
        self.outer: dict[int, int] = {}  # storages of inputs: how many inputs
        self.changed: set[int] = set()  # storages of inputs that are changed
        self.collectives: list[int] = []  # what collectives give, which all ranks compute whether they want it or not
        self.device: torch.device | None = None
        self.stream: Any = None  # torch's current stream on a GPU, when it was written down

    def number(self, tensor: torch.Tensor) -> int:
        """A tensor's number; one that isn't known becomes an input. Raises `Unknown`."""
        place = place_of(tensor)
        known = self.numbers.get(place)
        if known is not None:
            return known
        storage = place[0]
        if storage in self.made or storage in self.changed:
            raise Unknown
        made = self._new(place)
        if type(tensor) is torch.nn.Parameter:
            self.parameters.append((len(self.inputs), storage))
        self.inputs.append(tensor.data)
        self.input_numbers.append(made)
        self.outer[storage] = self.outer.get(storage, 0) + 1
        return made

    def view(self, tensor: torch.Tensor) -> int:
        """The number of a view of a tensor that is known."""
        place = place_of(tensor)
        known = self.numbers.get(place)
        return self._new(place) if known is None else known

    def make(self, layout: Layout, device: torch.device) -> tuple[torch.Tensor, int]:
        """Memory for a result, and its number."""
        shape, strides, dtype = layout
        tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        storage = tensor.untyped_storage()
        number = self._new((storage._cdata, 0, shape, strides, dtype, False))
        self.made[storage._cdata] = Made(storage, layout, number)
        return tensor, number

    def _new(self, place: Place) -> int:
        number = self.numbers[place] = len(self.layouts)
        self.layouts.append((place[2], place[3], place[4]))
        return number

    def change(self, tensor: torch.Tensor) -> None:
        """Notes that an op changes a tensor. Raises `Unknown` if an input shares its memory with another."""
        storage = tensor.untyped_storage()._cdata
        if storage in self.made:
            return
        if self.outer.get(storage, 0) > 1:
            raise Unknown
        self.changed.add(storage)

    def touches(self, tensor: torch.Tensor, changes: bool) -> bool:
        """Whether an op that reads or changes a tensor has to wait for the segment."""
        storage = tensor.untyped_storage()._cdata
        return storage in self.made or storage in self.changed or (changes and storage in self.outer)

    def living(self) -> dict[int, torch.Tensor]:
        """The tensors of the results that are still referenced, by number."""
        assert self.device is not None
        found = {one.number: one.tensor(self.device) for one in self.made.values()}
        return {number: tensor for number, tensor in found.items() if tensor is not None}

    @property
    def static(self) -> tuple[int, ...]:
        """Inputs that are mostly the same from run to run."""
        return tuple(i for i, storage in self.parameters if storage not in self.changed)

    @property
    def key(self) -> Any:
        """Segments of one key are one graph, of which other results may be wanted."""
        inputs = tuple((self.layouts[number], number) for number in self.input_numbers)
        return self.device, inputs, self.static, tuple(call.key for call in self.calls)

    def module(self, wanted: Sequence[int]) -> torch.fx.GraphModule:
        """The ops as a graph of ATen's, which takes the inputs and gives what is wanted."""
        graph = torch.fx.Graph()
        nodes: dict[int, torch.fx.Node] = {number: graph.placeholder(f"i{number}") for number in self.input_numbers}
        for call in self.calls:
            args, kwargs = (replaced(one, lambda ref: nodes[ref.number]) for one in (call.args, call.kwargs))
            node = graph.call_function(call.func, args, kwargs)
            if call.changes:  # the operand's node stands for it further on
                continue
            for i, number in enumerate(call.results):
                if number is not None:
                    nodes[number] = graph.call_function(operator.getitem, (node, i)) if call.listed else node
        graph.output([nodes[number] for number in wanted])
        return torch.fx.GraphModule(torch.nn.Module(), graph)


def replaced(value: Any, put: Any) -> Any:
    """Arguments with something else in the place of each `Ref`."""
    if isinstance(value, Ref):
        return put(value)
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(one, put) for one in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: replaced(one, put) for key, one in value.items()}
    return value


def frozen(value: Any) -> Any:
    """Arguments as what can be compared and hashed: 1, 1.0 and True are three. Raises TypeError for what can't."""
    kind = type(value)
    if kind is Ref or value is None or kind is str:
        return value
    if kind is list or kind is tuple:
        return (kind, *(frozen(one) for one in value))
    if kind is dict:
        return (kind, *((key, frozen(one)) for key, one in value.items()))
    if kind is float:
        return (kind, value.hex())
    hash(value)
    return (kind, value)
