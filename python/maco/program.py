"""Graphs that run with other tensors each time: what functions on tensors are made of.

A `Program` compiles a graph, opens it on a device for a group of ranks, and runs it with the memory of the tensors that a call gives.
`program()` keeps programs, so that a graph is compiled once a process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import config, groups
from .errors import Error, GraphError, Unavailable
from .graph import Graph
from .groups import Group
from .kernel import Kernel, Places, Profile, Session, TensorInfo, before_launches, prepare
from .tensors import ALIGNMENT, Memory, check, describe

__all__ = ["Program", "listeners", "program"]

listeners: list[Callable[[Program, Profile], None]] = []
"""While there are any, programs run with stamped kernels, and each listener is told the profile of each run, on all ranks alike."""


class Program:
    """A graph, compiled and opened on a device.

    `group`: the ranks that run it, as many as its world; None: this process alone, of a graph of one rank. `device` is "cpu" or "cuda",
    `index` the GPU's number. `options` are those of `Graph.compile`, without its target. Where the graph has several ranks, all of them
    make it and run it in one order; they compare graph and options first, and raise `maco.MismatchError` if these differ; rank 0 compiles.

    One run at a time; calls from several threads wait for each other.
    """

    def __init__(
        self, graph: Graph, *, group: Group | None = None, device: str = "cpu", index: int = 0, timeout: float | None = None, **options: Any
    ) -> None:
        config.apply(graph, device, index)
        self.group = group if group is not None and group.size > 1 else None
        self.device = device
        self.index = index
        self.timeout = timeout if timeout is not None else group.launch_timeout if group is not None else 30.0
        self._graph = graph
        self._options = {**options, **({"target": "cpu"} if device == "cpu" else {})}
        self.kernel = _compiled(graph, self.group, self._options)
        self._sessions: dict[bool, _Bound] = {}
        self._lost: dict[bool, dict[str, Any]] = {}  # memory of sessions that have to be opened anew
        self._generation = self.group.generation if self.group is not None else 0
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        """The graph's."""
        return self.kernel.name

    def __call__(self, tensors: Mapping[str, Any], values: Mapping[str, Any] | None = None, what: str = "", same: bool = False) -> None:
        """Runs the graph once, with tensors for its inputs, params, states and outputs by name.

        On the CPU it has run when this returns. On a GPU it is put on torch's current stream, and what fails raises at a later call; the
        tensors have to be there until then, which torch sees to for those that it allocated on that stream. A tensor has the kernel's
        dtype and shape, or on axis 0 as many rows as its dim in `values` says. What isn't contiguous or aligned to 16 bytes, has fewer
        rows, or shares memory with another that is written, is copied on the way. States and outputs that are left out have zeroed
        memory of the program's own. `what` says in errors what the ranks do. With `same` the mapping holds the same tensors, where they
        were, whenever it is the one of the call before: they aren't looked at again.
        """
        if before_launches:
            prepare()
        if self.group is not None:
            groups.settle()
        with self._lock:
            stamped = bool(listeners) or config.meaning("profile")
            if self.group is not None:
                self._meet(what, values or {}, stamped)
            bound = self._sessions.get(stamped)
            if bound is None:
                bound = self._sessions[stamped] = _Bound(self, stamped)
                bound.own = self._lost.pop(stamped, {})
            try:
                bound.run(tensors, values or {}, same)
            except KeyboardInterrupt:
                self._interrupted()
                raise
            if listeners:
                bound.session.wait()
                profile = bound.session.profile()
                for listener in listeners:
                    listener(self, profile)

    def _meet(self, what: str, values: Mapping[str, Any], stamped: bool) -> None:
        """Ranks on the CPU begin together, and open anew what one of them has lost."""
        assert self.group is not None
        if self.device != "cpu":
            return
        numbers = "".join(f", {name} = {value}" for name, value in values.items())
        generation = self.group.meet(what or f"runs '{self.name}'{numbers}{' under a profiler' if stamped else ''}")
        if generation != self._generation:
            self._drop()
            self._generation = generation

    def _interrupted(self) -> None:
        """Ctrl-C has broken the session."""
        if self.group is None:
            self._drop()
        elif self.device == "cpu":
            self.group.renew()

    def _drop(self) -> None:
        for stamped, bound in self._sessions.items():
            self._lost[stamped] = bound.own
            bound.session.close()
        self._sessions.clear()

    def wait(self) -> None:
        """Waits for all runs. Raises `maco.LaunchError` if any failed."""
        with self._lock:
            for bound in self._sessions.values():
                bound.session.wait()

    def close(self) -> None:
        """Frees what it holds."""
        with self._lock:
            for bound in self._sessions.values():
                bound.session.close()
            self._sessions.clear()


class _Slot:
    """A tensor of a kernel, as a fast look at torch's compares with it."""

    __slots__ = ("device", "dtype", "index", "info", "shape", "written")

    def __init__(self, index: int, info: TensorInfo, device: str, gpu: int) -> None:
        self.index = index
        self.info = info
        self.written = info.kind in ("state", "output")
        self.shape = info.shape
        self.dtype: Any = None
        self.device: Any = None
        torch = sys.modules.get("torch")
        if torch is not None:
            self.dtype = info.dtype.torch()
            self.device = torch.device(device, gpu) if device == "cuda" else torch.device("cpu")


class _Bound:
    """A session, and where its tensors are."""

    def __init__(self, program: Program, profile: bool) -> None:
        group = program.group
        kernel = program.kernel
        if profile and group and group.rank:
            kernel = program._graph.compile(**program._options)  # what came as source can't be profiled
        self.session = Session(
            kernel,
            program.device,  # type: ignore[arg-type]
            timeout=program.timeout,
            process_a_rank=True,
            rank=group.rank if group else 0,
            group=group.name if group else None,
            gpu=program.index if program.device == "cuda" else None,
            profile=profile,
        )
        self.program = program
        self.slots = {info.name: _Slot(i, info, program.device, program.index) for i, info in enumerate(program.kernel.tensors)}
        self.own: dict[str, Any] = {}  # memory of the program's, by name
        self.places = Places(len(self.slots))
        self.safe: set[tuple[Any, ...]] = set()  # where tensors were that needed no copies: names, then addresses
        self.last: tuple[Any, ...] = ()  # what `places` has
        self.same: Mapping[str, Any] | None = None  # whose tensors these are, if they stay there and nothing was copied
        self.stream = _current_stream() if program.device == "cuda" else None
        torch = sys.modules.get("torch")
        self.plain: tuple[Any, ...] = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        self.strided = None if torch is None else torch.strided

    def run(self, tensors: Mapping[str, Any], values: Mapping[str, Any], same: bool) -> None:
        if same and self.same is tensors:
            self._launch(self.last, values)
            return
        self.same = None
        key = self._quick(tensors) if self.plain else None
        if key is not None and key in self.safe:
            self._launch(key, values)
            direct = True
        else:
            direct = self._run(tensors, key, values)
        if same and direct:
            self.same = tensors

    def _quick(self, tensors: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Names, then addresses, of tensors that all are torch's and just as the kernel has them; else None."""
        slots, plain, strided = self.slots, self.plain, self.strided
        addresses = []
        for name, tensor in tensors.items():
            slot = slots.get(name)
            if (
                slot is None
                or type(tensor) not in plain
                or tensor.dtype is not slot.dtype
                or tensor.shape != slot.shape
                or tensor.device != slot.device
                or tensor.layout is not strided
                or not tensor.is_contiguous()
                or tensor.is_neg()
            ):
                return None
            addresses.append(tensor.data_ptr())
        return (*tensors, *addresses)

    def _launch(self, key: tuple[Any, ...], values: Mapping[str, Any]) -> None:
        """With tensors whose names stand in `key`, and behind them their addresses."""
        places, count = self.places, len(key) // 2
        if key != self.last:
            for i in range(count):
                places.put(i, self.slots[key[i]].index, key[count + i])
            self.last = key
        if self.stream is None:
            self.session._run_placed(values, places, count)
        else:
            self.session._launch_placed(self.stream(self.program.index), values, places, count)

    def _run(self, tensors: Mapping[str, Any], key: tuple[Any, ...] | None, values: Mapping[str, Any]) -> bool:
        """Gives whether nothing was copied."""
        device, index = self.program.device, self.program.index
        memories: dict[str, Memory] = {}
        for name, tensor in tensors.items():
            info = self.session._find(name)
            memory = memories[name] = describe(tensor, name)
            check(
                memory,
                name,
                dtype=info.dtype,
                shape=info.shape,
                rows_up_to=True,
                device=device,
                index=index if device == "cuda" else None,
                contiguous=False,
                aligned=False,
                writable=self.slots[name].written,
            )
        copied = {name for name, memory in memories.items() if not self._fits(self.slots[name].info, memory)}
        copied |= _overlapping({name: memory for name, memory in memories.items() if name not in copied}, self.slots)
        at: list[int] = []
        for name, memory in memories.items():
            if name in copied:
                own, whole = self._memory(name)
                if self.slots[name].info.kind != "output":
                    _rows(own, tensors[name]).copy_(tensors[name])
                at.append(whole.address)
            else:
                at.append(memory.address)
        for name, slot in self.slots.items():
            if name in memories:
                continue
            if slot.info.kind in ("input", "param"):
                raise Error(f"'{name}' has no tensor")
            if self.session.address(name) is None:
                self.session.bind(name, self._memory(name)[0])
        self._launch((*memories, *at), values)
        for name in copied:
            if self.slots[name].written:
                tensors[name].copy_(_rows(self.own[name], tensors[name]))
        if key is not None and not copied:
            if len(self.safe) >= 256:
                self.safe.clear()
            self.safe.add(key)
        return not copied

    def _fits(self, info: TensorInfo, memory: Memory) -> bool:
        return memory.shape == info.shape and memory.contiguous and memory.address % ALIGNMENT == 0

    def _memory(self, name: str) -> tuple[Any, Memory]:
        own = self.own.get(name)
        if own is None:
            import torch

            slot = self.slots[name]
            where = "cpu" if self.program.device == "cpu" else f"cuda:{self.program.index}"
            own = self.own[name] = torch.zeros(slot.shape, dtype=slot.info.dtype.torch(), device=where)
        return own, describe(own, name)


def _current_stream() -> Callable[[int], int]:
    """Gives the handle of torch's current stream on a GPU."""
    import torch

    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what PyTorch's own compiler calls
    return quick or (lambda gpu: torch.cuda.current_stream(gpu).cuda_stream)


def _rows(whole: Any, like: Any) -> Any:
    return whole[: like.shape[0]] if whole.shape != like.shape else whole


def _overlapping(memories: Mapping[str, Memory], slots: Mapping[str, _Slot]) -> set[str]:
    """Tensors that share memory with another, of which one is written: all of them but one that is written. Those are only read."""
    ordered = sorted(memories.items(), key=lambda item: item[1].address)
    found: set[str] = set()
    for i, (name, memory) in enumerate(ordered):
        for other, further in ordered[i + 1 :]:
            if further.address >= memory.address + memory.bytes:
                break
            if not further.bytes or not memory.bytes:
                continue
            written = [one for one in (name, other) if slots[one].written]
            if len(written) == 2:
                raise Error(f"'{name}' and '{other}' share memory, and both are written")
            if written:
                found.add(other if written[0] == name else name)
    return found


def _compiled(graph: Graph, group: Group | None, options: Mapping[str, Any]) -> Kernel:
    if group is None:
        return graph.compile(**options)
    groups.settle()
    text = graph.text(canonical=True)
    group.compare(f"{text}\n{sorted(options.items())!r}", f"the graph '{graph.name}' or its options")
    answer, kernel = "", None
    if group.rank == 0:
        try:
            kernel = graph.compile(**options)
            answer = "+" + kernel.source
        except Error as error:
            answer = f"-{type(error).__name__}\n{error}"
            failed = error
    answer = group.exchange(answer)[0]
    if answer.startswith("-"):
        if group.rank == 0:
            raise failed
        name, _, message = answer[1:].partition("\n")
        raise {"GraphError": GraphError, "Unavailable": Unavailable}.get(name, Error)(message)
    return kernel if kernel is not None else Kernel.from_source(answer[1:])


_kept: dict[Any, Program] = {}
_keep_lock = threading.Lock()


def program(graph: Graph, *, group: Group | None = None, device: str = "cpu", index: int = 0, **options: Any) -> Program:
    """The program of a graph: one that was made before of an equal graph for the same group, device and options, or a new one."""
    config.apply(graph, device, index)
    alone = group is None or group.size == 1
    of = None if alone else group.name  # type: ignore[union-attr]
    key = (graph.text(canonical=True), of, device, index, repr(sorted(options.items())))
    with _keep_lock:
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = Program(graph, group=group, device=device, index=index, **options)
        return found
