"""A kernel with its tensors: registered once, a task graph over them, one launch a call."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from . import groups
from .dtypes import DType, as_dtype
from .errors import Error, GraphError
from .expressions import Expr, ExprLike
from .graph import _caller, _extents, _Op
from .kernel import Kernel
from .program import Program
from .registered import have_torch, library_of, operand, usable
from .roles import Roles, SMConfig, counts, current_device, of_one_rank, reworded, roles_of
from .taskgraph import TaskGraph
from .tensors import Memory, describe, shape_text
from .untraced import untraced
from .words import integer, suggestion

__all__ = ["PersistentKernel"]


class _Output:
    """A registered output."""

    def __init__(self, text: str, dtype: DType) -> None:
        self.text, self.dtype = text, dtype


_GROWING = ("_items", "_taken", "_values", "_lines", "_made", "_results", "_read", "_collectives", "_places", "_programs", "_limits")
"""What a graph has that a block of a task graph adds to, and a block that fails leaves as it was."""


class PersistentKernel:
    """Tensors, a task graph over them, and the kernel that it becomes: one launch a call.

    `world_size` and `rank` are this process's among those that run the kernel together; those of `maco.init` if they aren't given.
    `num_workers` SMs compute and `num_remote_schedulers` SMs communicate; the compiler chooses what isn't said. `sm_config` says it SM by
    SM instead. `num_local_schedulers` is 0: schedulers on the GPU come with the schedule 'dynamic', which this version lacks.
    `name` is the graph's, `timeout` how many seconds a launch may go on without progress, 30 or what `init` was told if it isn't given.

    It runs where its tensors are, and without any where MACO_DEVICE says, else on a GPU. Autograd records nothing of it.
    """

    def __init__(
        self,
        world_size: int | None = None,
        rank: int | None = None,
        num_workers: int | None = None,
        num_local_schedulers: int = 0,
        num_remote_schedulers: int | None = None,
        sm_config: SMConfig | None = None,
        *,
        name: str = "persistent",
        timeout: float | None = None,
    ) -> None:
        group = groups.default()
        self.world_size = group.size if world_size is None else integer(world_size, "world_size", 1)
        self.rank = (group.rank if self.world_size > 1 else 0) if rank is None else integer(rank, "rank", 0)
        if self.world_size not in (1, group.size):
            raise Error(
                f"world_size is {self.world_size}, but there {'is 1 process' if group.size == 1 else f'are {group.size} processes'}: "
                f"start as many, as torchrun --nproc-per-node {self.world_size} does"
            )
        if self.rank != (group.rank if self.world_size > 1 else 0):
            raise Error(f"rank is {self.rank}, but this process is rank {group.rank if self.world_size > 1 else 0} of {self.world_size}")
        if integer(num_local_schedulers, "num_local_schedulers", 0):
            raise Error(
                f"num_local_schedulers={num_local_schedulers}: schedulers on the GPU come with the schedule 'dynamic', which this version "
                f"hasn't; leave it out, or give 0"
            )
        if sm_config is not None and (num_workers is not None or num_remote_schedulers is not None):
            raise Error("sm_config says what every SM does: leave num_workers and num_remote_schedulers out")
        if sm_config is not None and not isinstance(sm_config, SMConfig):
            raise TypeError(f"sm_config is a maco.SMConfig, not a {type(sm_config).__name__}")
        self._group = group if self.world_size > 1 else None
        self._roles = (num_workers, num_remote_schedulers, sm_config)
        self._timeout = timeout
        self._tensors: dict[str, Any] = {}  # as registered
        self._memories: dict[str, Any] = {}  # what the kernel is given: the same memory
        self._names: dict[int, str] = {}  # by id
        self._outputs: dict[str, _Output] = {}
        self._empty: set[str] = set()  # registered, without elements
        self._idle = False  # compiled, and there is nothing to do
        self._shown: dict[str, Any] = {}  # as callers see them
        self._place: tuple[str, int | None] | None = None
        self._placed_by = ""
        self._library = ""
        self._program: Program | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._graph = TaskGraph(self, name, self.world_size)
        if any(one is not None for one in self._roles) and current_device()[0] == "cpu":
            self._setting("cpu", None)  # what can't fit is told here; where a GPU may be meant, when tensors say so

    # ---- tensors

    def dim(self, name: str, max: int, min: int = 1, typical: int | None = None) -> Expr:
        """A number of rows that each call says as a keyword, from `min` to `max`; `max` if it doesn't. For `rows=` of tensors."""
        return self._declare(lambda: self._graph.dim(name, max, min, typical))

    def scalar(self, name: str, lo: int, hi: int, typical: int | None = None) -> Expr:
        """A number that each call must say as a keyword, from `lo` up to `hi`, which is excluded."""
        return self._declare(lambda: self._graph.scalar(name, lo, hi, typical))

    def register_tensor(self, tensor: Any, name: str | None = None, *, rows: ExprLike | None = None) -> Any:
        """Lets the kernel read and write a tensor where it lies, and gives it back, for ops of the task graph.

        `tensor` is torch's, NumPy's, or has `__dlpack__`. What is in it at a call is what that call works with. A tensor that isn't
        contiguous, or aligned to 16 bytes, is copied at each call. With `rows`, a dim, only so many rows of axis 0 count.
        In the task graph + - * and @ of what this gives are ops.
        """
        self._growing()
        called = self._fresh(name, "tensor")
        known = self._name_of(tensor)
        if known is not None:
            raise Error(f"the tensor is registered already, as '{known}'")
        memory = describe(tensor, called)
        self._put(memory, called)
        library = library_of(tensor)
        memory_of_it = usable(tensor, memory, called)
        if not memory.elements:
            self._empty.add(called)
        shape = _shape(memory.shape, rows, called)
        self._graph._register(called, f"{called} : {memory.dtype}{_extents(shape)}", _caller(), memory.dtype)
        self._library = self._library or library
        self._tensors[called] = tensor
        self._memories[called] = memory_of_it
        given = operand(self, tensor, library)
        self._names[id(tensor)] = called
        if given is not tensor:
            self._names[id(given)] = called
            self._shown[called] = given  # kept alive: its id is its name
        return given

    def register_output(self, shape: Sequence[int], dtype: Any, name: str | None = None, *, rows: ExprLike | None = None) -> Any:
        """Allocates memory for a result, zero at first, and gives the tensor, for `output=` of an op of the task graph.

        It lies on the device of the registered tensors, and is of their library. With `rows`, a dim, each call writes that many rows.
        """
        self._growing()
        called = self._fresh(name, "output")
        extents = _extents_of(shape, called)
        known = as_dtype(dtype)
        made, own = self._allocate(extents, known)
        if 0 in extents:
            self._empty.add(called)
        self._outputs[called] = _Output(f"{called} : {known}{_extents(_shape(tuple(extents), rows, called))}", known)
        self._tensors[called] = self._shown[called] = made
        self._memories[called] = own
        self._names[id(made)] = called
        return made

    # ---- the graph

    @contextlib.contextmanager
    def task_graph(self) -> Iterator[TaskGraph]:
        """The kernel's task graph, to which ops are added in the block. A later block goes on with it, until the kernel is compiled."""
        self._growing()
        graph = self._graph
        if graph._building:
            raise Error("the task graph is being built already")
        kept = {key: getattr(graph, key).copy() for key in _GROWING}
        kinds = {name: value.kind for name, value in graph._values.items()}
        graph._building = True
        try:
            yield graph
        except BaseException:
            # As if the block hadn't been.
            graph.__dict__.update(kept)
            for name, value in graph._values.items():
                value.kind = kinds.get(name, value.kind)
            raise
        finally:
            graph._building = False

    @untraced
    def compile(self) -> Kernel | None:
        """Compiles the task graph; the first call does it where it is left out. Gives the kernel, with its `source` and `report`.

        None where there is nothing to do, since all that the graph writes has no elements.
        Raises `maco.GraphError` if the graph is wrong. With several ranks all of them call it, and `maco.MismatchError` says if their
        graphs differ. Compiling twice does nothing.
        """
        with self._lock:
            self._usable()
            if self._program is not None or self._idle:
                return None if self._program is None else self._program.kernel
            graph = self._graph
            if graph._building:
                raise Error("the task graph is still being built: compile behind its 'with' block")
            if not any(isinstance(item, _Op) for _, item in graph._items):
                raise Error("the task graph has no ops: 'with kernel.task_graph() as graph:' adds them")
            device, index = self._device()
            before = list(graph._items)
            graph._building = True
            try:
                graph._finish()
                if self._empty and self._nothing_to_do():
                    self._idle = True
                    return None
                roles = self._setting(device, index)
                if roles is not None:
                    graph.set(sm_roles=of_one_rank(roles) if self.world_size == 1 else roles)
                program = Program(graph, group=self._group, device=device, index=index or 0, timeout=self._timeout)
            except GraphError as error:
                graph._items = before
                raise reworded(error, "'sm_config'" if self._roles[2] is not None else "num_workers and num_remote_schedulers") from None
            except BaseException:
                graph._items = before
                raise
            finally:
                graph._building = False
            self._own(program)
            self._program = program
            return program.kernel

    @untraced
    def __call__(self, **values: int) -> Any:
        """Runs the kernel once. Scalars and dims are keywords.

        Gives the outputs by name, or the tensor if there is one output: the registered tensors, and for results that have only a name
        the kernel's own, of which each call overwrites the contents. On a GPU it is put on torch's current stream.
        """
        with self._lock:
            self.compile()
            program = self._program
            if program is None:
                found = {name: self._shown[name] for name in self._graph._made}
                return next(iter(found.values())) if len(found) == 1 else found
            variables = self._variables
            for key in values:
                if key not in variables:
                    raise TypeError(f"the kernel has no dim or scalar '{key}'; {suggestion(key, variables)}")
            missing = [key for key, needed in variables.items() if needed and key not in values]
            if missing:
                raise Error(f"a call must say the scalar '{missing[0]}'")
            program(self._given, values, same=True)
            found = {name: self._rows(name, values) for name in self._given_out}
        return next(iter(found.values())) if len(found) == 1 else found

    def wait(self) -> None:
        """Waits for all calls to have run. Raises `maco.LaunchError` if one failed."""
        if self._program is not None:
            self._program.wait()

    @property
    def graph(self) -> TaskGraph:
        """The task graph."""
        return self._graph

    def close(self) -> None:
        """Frees what the kernel holds, and lets go of its tensors. Doing so twice is allowed."""
        with self._lock:
            self._closed = True
            if self._program is not None:
                self._program.close()
                self._program = None
            self._tensors.clear()
            self._memories.clear()
            self._names.clear()
            self._shown.clear()

    def __enter__(self) -> PersistentKernel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.PersistentKernel: pickle graph.text(), and build another")

    def __repr__(self) -> str:
        state = "closed" if self._closed else "compiled" if self._program is not None else "being built"
        return f"<maco.PersistentKernel '{self._graph.name}' on rank {self.rank} of {self.world_size}, {state}>"

    # ---- inside

    _given: dict[str, Any]
    _given_out: list[str]
    _variables: dict[str, bool]

    def _usable(self) -> None:
        if self._closed:
            raise Error("the kernel was closed")

    def _growing(self) -> None:
        self._usable()
        if self._program is not None or self._idle:
            raise Error("the kernel is compiled, and its graph can't grow any more; make another")

    def _declare(self, make: Callable[[], Expr]) -> Expr:
        self._growing()
        was, self._graph._building = self._graph._building, True
        try:
            return make()
        finally:
            self._graph._building = was

    def _fresh(self, name: str | None, what: str) -> str:
        taken = {*self._tensors, *self._graph._taken}
        if name is None:
            name = next(f"{what}.{i}" for i in range(len(taken) + 1) if f"{what}.{i}" not in taken)
        self._graph._check_name(name, f"the {what}")
        if name in taken:
            raise Error(f"the name '{name}' is taken")
        return name

    def _put(self, memory: Memory, name: str) -> None:
        place = (memory.device, memory.index if memory.device == "cuda" else None)
        if self._place is not None and self._place != place:
            raise Error(f"'{name}' is on {memory.place}, but '{self._placed_by}' is not: a kernel's tensors are on one device")
        if self._place is None:
            self._setting(*place)
        self._place, self._placed_by = place, name

    def _device(self) -> tuple[str, int | None]:
        return self._place if self._place is not None else current_device()

    def _setting(self, device: str, index: int | None) -> Roles | None:
        workers, comm, config = self._roles
        if config is not None:
            return roles_of(config, device, index)
        return counts(workers, comm, device, index, ("num_workers", "num_remote_schedulers"))

    def _allocate(self, shape: Sequence[int], dtype: DType) -> tuple[Any, Any]:
        """Zeroed memory as the registered tensors have it: as the caller sees it, and as the kernel gets it."""
        device, index = self._device()
        if self._place is None:
            self._place, self._placed_by = (device, index), "an output"
        if self._library == "numpy" or not have_torch():
            import numpy

            made = numpy.zeros(tuple(shape), dtype.numpy())
            return made, made.reshape(1) if not shape else made
        import torch

        where = "cpu" if device == "cpu" else f"cuda:{index or 0}"
        tensor = torch.zeros(tuple(shape), dtype=dtype.torch(), device=where)
        return tensor, tensor.reshape(1) if not shape else tensor

    def _own(self, program: Program) -> None:
        """Allocates tensors that were registered by name only; finds which of them a call returns."""
        made = {}
        for info in program.kernel.tensors:
            if info.name in self._memories:
                made[info.name] = self._memories[info.name]
                continue
            self._shown[info.name], made[info.name] = self._allocate(info.shape, info.dtype)
        self._given = made
        kinds = {info.name: info.kind for info in program.kernel.tensors}
        self._given_out = [name for name in self._graph._made if kinds.get(name) == "output"]
        self._variables = {one.name: True for one in program.kernel.scalars} | {one.name: False for one in program.kernel.dims}
        self._maxima = {one.name: one.highest for one in program.kernel.dims}
        self._counted = {}
        if self._maxima:
            text = self._graph.text(canonical=True)
            for name in self._given_out:
                found = re.search(rf"^\s*output (?:.*, )?{re.escape(name)} : \w+\[([^,\]]*)", text, re.M)
                if found and not found.group(1).isdigit():
                    self._counted[name] = compile(found.group(1).replace("/", "//").replace("world", str(self.world_size)), name, "eval")

    _maxima: dict[str, int]
    _counted: dict[str, Any]

    def _rows(self, name: str, values: Mapping[str, int]) -> Any:
        """An output; of rows that a dim counts those of a launch."""
        tensor, counted = self._shown[name], self._counted.get(name)
        return tensor if counted is None else tensor[: eval(counted, {"__builtins__": {}}, {**self._maxima, **values})]

    def _nothing_to_do(self) -> bool:
        """Whether all that the graph writes has no elements. Raises `maco.Error` if only some of what is registered has none."""
        written = {*self._graph._made, *(name for name, value in self._graph._values.items() if value.kind == "state")}
        if written <= self._empty:
            return True
        name = sorted(self._empty)[0]
        other = sorted(written - self._empty)[0]
        shape = shape_text(tuple(self._tensors[name].shape))
        raise Error(
            f"'{name}' has the shape {shape}, without elements, but the graph writes '{other}', which has some: leave what has none out "
            f"of the task graph"
        )

    def _name_of(self, tensor: Any) -> str | None:
        """The name under which a tensor is registered, or None."""
        name = self._names.get(id(tensor))
        if name is None:
            return None
        known = self._tensors[name]
        return name if known is tensor or self._shown.get(name) is tensor else None

    def _is_registered(self, value: Any) -> bool:
        return self._name_of(value) is not None

    def _is_tensor(self, value: Any) -> bool:
        return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")

    def _writable(self, name: str) -> None:
        memory = describe(self._memories[name], name)
        if not memory.writable:
            raise Error(f"'{name}' is written by the task graph, but the tensor is read-only")


def _shape(shape: tuple[int, ...], rows: ExprLike | None, name: str) -> list[ExprLike]:
    extents: list[ExprLike] = list(shape or (1,))
    if rows is not None:
        if not shape:
            raise Error(f"'{name}' has no axis of which a dim could count the rows")
        extents[0] = rows
    return extents


def _extents_of(shape: Any, name: str) -> list[int]:
    if isinstance(shape, (int, str)) or not hasattr(shape, "__iter__"):
        raise TypeError(f"the shape of '{name}' is a list of extents, not {shape!r}")
    extents = []
    for one in shape:
        extents.append(integer(one, f"an extent of '{name}'", 0))
    return extents
