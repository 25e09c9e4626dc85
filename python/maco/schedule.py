"""Collectives in phases, compiled to one kernel that runs them again and again."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Union

import torch

from . import collectives, eager, groups, torch_ops
from .dtypes import as_dtype
from .errors import Error
from .graph import Graph, Value
from .groups import Group
from .kernel import Kernel
from .program import Program
from .roles import counts
from .untraced import untraced
from .words import integer, suggestion

__all__ = ["CommHandle", "CommScheduler", "Phase"]

_OWN = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8)


class CommHandle:
    """A collective of a phase: an operand of later ones, and its result behind a run."""

    def __init__(self, scheduler: CommScheduler, phase: Phase, kind: str, x: Any, words: dict[str, Any], shape: torch.Size) -> None:
        self._scheduler = scheduler
        self._phase = phase
        self._kind = kind
        self._x: torch.Tensor | CommHandle = x
        self._taken = (x.shape, x.dtype, x.device)
        self._words = words
        self.shape = shape
        """The shape of the result."""
        self.dtype: torch.dtype = x.dtype
        """The dtype of the result, and of the operand."""
        self.device: torch.device = x.device
        """Where the result is."""
        self._value: Value | None = None
        self._result: torch.Tensor | None = None

    def result(self) -> torch.Tensor:
        """The result of the last run. Each run makes a new tensor. Raises `maco.Error` if nothing has run yet."""
        if self._result is None:
            raise Error("there is no result before the scheduler has run: scheduler.run() does")
        return self._result

    def wait(self) -> torch.Tensor:
        """The same as `result()`."""
        return self.result()

    def _unchanged(self) -> None:
        shape, dtype, device = self._taken
        if (self._x.shape, self._x.dtype, self._x.device) != self._taken:
            now = f"{self._x.dtype}{list(self._x.shape)} on {self._x.device}"
            raise Error(
                f"a tensor of phase '{self._phase.name}' was {dtype}{list(shape)} on {device}, and is {now}: only its contents may change"
            )

    def _arguments(self) -> list[Any]:
        """The arguments behind the operand in a call of `torch.ops.maco`."""
        first = [self._words[key] for key in ("reduce", "root") if key in self._words]
        return [*first, self._scheduler._group_name, self._words["attributes"]]

    def __repr__(self) -> str:
        return f"<maco {self._kind} of phase '{self._phase.name}', {'done' if self._result is not None else 'not run'}>"


Operand = Union[torch.Tensor, CommHandle]


class Phase:
    """Collectives that may run together; those of phases that depend on it start after all of them."""

    def __init__(self, scheduler: CommScheduler, name: str, before: tuple[str, ...]) -> None:
        self._scheduler = scheduler
        self.name = name
        """What it is called."""
        self.depends_on = before
        """Names of the phases before it."""

    def allreduce(self, x: Operand, op: Any = "sum", **words: Any) -> CommHandle:
        """The reduction of x over all ranks, of x's shape. The keywords `priority`, `overlap_group`, `use_ring` are `maco.allreduce`'s."""
        return self._scheduler._add(self, "all_reduce", x, words, reduce=op)

    def reduce_scatter(self, x: Operand, op: Any = "sum", **words: Any) -> CommHandle:
        """This rank's part of the reduction: axis 0 of x is cut into as many equal parts as there are ranks."""
        return self._scheduler._add(self, "reduce_scatter", x, words, reduce=op)

    def allgather(self, x: Operand, **words: Any) -> CommHandle:
        """[world, *x.shape]: what each rank has."""
        return self._scheduler._add(self, "all_gather", x, words)

    def alltoall(self, x: Operand, **words: Any) -> CommHandle:
        """x's shape: part i of axis 0 comes from rank i, of which it was the part of this rank's number."""
        return self._scheduler._add(self, "all_to_all", x, words)

    def broadcast(self, x: Operand, root: int = 0, **words: Any) -> CommHandle:
        """x of rank `root`."""
        return self._scheduler._add(self, "broadcast", x, words, root=root)

    def __repr__(self) -> str:
        return f"<maco.Phase '{self.name}'>"


class CommScheduler:
    """Collectives in phases, as one kernel.

    `num_sms` SMs communicate; the compiler chooses if it isn't given. `group` are the ranks, all of them if it isn't given: each makes the
    same phases and calls in one order. Tensors are read when the scheduler runs: what is in them may change between runs.
    """

    def __init__(self, num_sms: int | None = None, *, group: Any = None, timeout: float | None = None) -> None:
        self._group: Group = groups.default() if group is None else groups.of(group)
        self._group_name = "" if group is None else self._group.name
        if num_sms is not None:
            integer(num_sms, "num_sms", 1, "a number of SMs")
        self._sms = num_sms
        self._timeout = timeout
        self._phases: dict[str, Phase] = {}
        self._calls: list[CommHandle] = []
        self._program: Program | None = None
        self._compiled = False
        self._closed = False
        self._lock = threading.RLock()
        from .roles import current_device

        if num_sms is not None and current_device()[0] == "cpu":
            self._roles(torch.device("cpu"))

    def phase(self, name: str, depends_on: Any = None) -> Phase:
        """A phase. `depends_on` are phases that were made before, or their names: one, or a list.

        Raises `maco.Error` for a name that is taken, and for phases that aren't there.
        """
        self._growing()
        if not isinstance(name, str):
            raise TypeError(f"the name of a phase is a string, not {type(name).__name__}")
        if not name:
            raise Error("a phase has a name")
        if name in self._phases:
            raise Error(f"there is a phase '{name}' already")
        before = depends_on if isinstance(depends_on, (list, tuple, set, frozenset)) else [] if depends_on is None else [depends_on]
        names = []
        for one in before:
            if isinstance(one, Phase):
                if self._phases.get(one.name) is not one:
                    raise Error(f"the phase '{one.name}' is another scheduler's")
                names.append(one.name)
            elif isinstance(one, str):
                if one == name:
                    raise Error(f"the phase '{name}' would depend on itself")
                if one not in self._phases:
                    raise Error(f"there is no phase '{one}' on which '{name}' could depend; {suggestion(one, self._phases)}")
                names.append(one)
            else:
                raise TypeError(f"depends_on takes phases or their names, not a {type(one).__name__}")
        made = self._phases[name] = Phase(self, name, tuple(dict.fromkeys(names)))
        return made

    @untraced
    def compile(self) -> Kernel | None:
        """Compiles all phases to one kernel; the first run does it where it is left out.

        Gives the kernel; None if it would have nothing to do: with one rank, or where all is done outside of it. With several ranks all
        of them call it; `maco.MismatchError` says if they differ.
        """
        with self._lock:
            self._usable()
            if not self._compiled:
                self._program = self._make()
                self._compiled = True
            return None if self._program is None else self._program.kernel

    @untraced
    def run(self) -> None:
        """Runs all phases once; results are in the handles then. On GPUs it is put on torch's current stream."""
        with self._lock:
            self.compile()
            for call in self._calls:
                call._unchanged()
            results: dict[int, torch.Tensor] = {}
            if self._program is not None:
                given: dict[str, Any] = {}
                for i, call in enumerate(self._calls):
                    if call._value is None:
                        continue
                    if isinstance(call._x, torch.Tensor):
                        given[f"x{i}"] = call._x.detach().reshape(-1)
                    made = torch.empty(call.shape, dtype=call.dtype, device=call.device)
                    given[f"y{i}"] = made.view(-1)
                    results[id(call)] = made
                self._program(given)
            for call in self._calls:
                source = call._x if isinstance(call._x, torch.Tensor) else results[id(call._x)]
                if call._value is None:
                    with torch.no_grad():
                        results[id(call)] = getattr(torch.ops.maco, call._kind)(source, *call._arguments())
                attached = source.requires_grad and torch.is_grad_enabled()
                if attached:
                    results[id(call)] = _Attached.apply(source, results[id(call)], call._kind, call._arguments())
            for call in self._calls:
                call._result = results[id(call)]

    def __call__(self) -> None:
        """The same as `run()`."""
        self.run()

    def close(self) -> None:
        """Frees what it holds. Doing so twice is allowed."""
        with self._lock:
            self._closed = True
            if self._program is not None:
                self._program.close()
                self._program = None

    def __enter__(self) -> CommScheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.CommScheduler: make another, with the same phases")

    def __repr__(self) -> str:
        return f"<maco.CommScheduler of {len(self._calls)} collectives in {len(self._phases)} phases>"

    # ---- inside

    def _usable(self) -> None:
        if self._closed:
            raise Error("the scheduler was closed")

    def _growing(self) -> None:
        self._usable()
        if self._compiled:
            raise Error("the scheduler is compiled, and can't grow any more; make another")

    def _add(self, phase: Phase, kind: str, x: Any, words: dict[str, Any], **arguments: Any) -> CommHandle:
        self._growing()
        if isinstance(x, CommHandle):
            if x._scheduler is not self:
                raise Error("the operand is a collective of another scheduler")
        elif not isinstance(x, torch.Tensor):
            raise TypeError(f"a collective takes a torch.Tensor or what another collective of the scheduler gave, not a {type(x).__name__}")
        arguments["attributes"] = _attributes(_OPS[kind], words)
        if "reduce" in arguments:
            arguments["reduce"] = collectives._reduction(arguments["reduce"])
            eager.check_reducible(x.dtype, arguments["reduce"])
        size = self._group.size
        if kind in ("reduce_scatter", "all_to_all"):
            eager.check_parts(torch.empty(x.shape, device="meta"), size, kind)
        if kind == "broadcast":
            arguments["root"] = operator.index(arguments["root"])
            if not 0 <= arguments["root"] < size:
                raise Error(f"broadcast: there is no rank {arguments['root']}: there are {size}, from 0 to {size - 1}")
        shape = tuple(x.shape)
        if kind == "all_gather":
            shape = (size, *shape)
        elif kind == "reduce_scatter":
            shape = (shape[0] // size, *shape[1:])
        if self._calls and self._calls[0].device != x.device:
            raise Error(f"a scheduler's tensors are on one device: this one is on {x.device}, the first on {self._calls[0].device}")
        if not self._calls and self._sms is not None:
            self._roles(x.device)
        made = CommHandle(self, phase, kind, x, arguments, torch.Size(shape))
        self._calls.append(made)
        return made

    def _roles(self, device: torch.device) -> Any:
        index = device.index or 0 if device.type == "cuda" else None
        kind = "cuda" if device.type == "cuda" else "cpu"
        if self._group.size == 1:
            counts(None, self._sms, kind, index, ("compute_sms", "num_sms"))
            return None
        return counts(None, self._sms, kind, index, ("compute_sms", "num_sms"))

    def _make(self) -> Program | None:
        group = self._group
        graph = Graph("schedule", group.size)
        for phase in self._phases.values():
            graph.phase(phase_name(phase.name), [phase_name(one) for one in phase.depends_on])
        own: list[CommHandle] = []
        for i, call in enumerate(self._calls):
            call._value = None
            reduce = call._words.get("reduce")
            if group.size == 1 or not torch.Size(call.shape).numel() or call.dtype not in _OWN or not eager.takes(call.dtype, reduce):
                continue
            if isinstance(call._x, CommHandle) and call._x._value is None:
                continue
            operand = call._x._value if isinstance(call._x, CommHandle) else None
            if operand is None:
                operand = graph.input(f"x{i}", as_dtype(call.dtype), [max(1, torch.Size(call._x.shape).numel())])
            call._value = self._op(graph, call, operand, i)
            own.append(call)
        for i, call in enumerate(self._calls):
            if call._value is not None:
                graph.output(f"y{i}", call._value)
        if not own:
            return None
        device = own[0].device
        roles = self._roles(device) if self._sms is not None else None
        if roles is not None:
            graph.set(sm_roles=roles)
        if device.type == "cuda" and (backend := groups.graph_backend()):
            graph.set(backend=backend)
        return Program(graph, group=group, device=device.type, index=device.index or 0, timeout=self._timeout)

    def _op(self, graph: Graph, call: CommHandle, x: Value, i: int) -> Value:
        words = eager.words(call._words["attributes"])
        words.setdefault("name", f"{_OPS[call._kind]}_{call._phase.name}_{i}" if _plain(call._phase.name) else f"{_OPS[call._kind]}_{i}")
        words["phase"] = phase_name(call._phase.name)
        if "reduce" in call._words:
            words["reduce"] = eager._OWN_REDUCTIONS[call._words["reduce"]]
        if "root" in call._words:
            words["root"] = call._words["root"]
        op: Callable[..., Value] = getattr(graph, _OPS[call._kind])
        return op(x, **words)


_OPS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
}


def _plain(name: str) -> bool:
    return name.isidentifier() and name.isascii()


def phase_name(name: str) -> str:
    """What a phase is called in a graph, where names have letters, digits and _."""
    return name if _plain(name) else "phase_" + "".join(one if one.isalnum() and one.isascii() else f"_{ord(one):x}_" for one in name)


class _Attached(torch.autograd.Function):  # type: ignore[misc]
    """A result that the kernel made, with the gradient of its collective."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, result: torch.Tensor, kind: str, words: list[Any]) -> torch.Tensor:
        ctx.kind, ctx.words = kind, words
        ctx.save_for_backward(x, result)
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return getattr(torch_ops, f"_{ctx.kind}_backward")(ctx, grad)[0], None, None, None


def _attributes(kind: str, words: dict[str, Any]) -> str:
    """The attributes of a call, as JSON. Raises TypeError for unknown keywords, and `maco.Error` for unknown words."""
    told: dict[str, Any] = {"priority": "normal", "overlap_group": None, "use_ring": None, "overlap_with_next": None}
    for key in words:
        if key not in told:
            raise TypeError(f"{kind}() of a phase has no keyword '{key}'; {suggestion(key, told)}")
    told.update(words)
    return collectives._attributes(kind, **told)
