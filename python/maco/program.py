"""Graphs that run with other tensors each time: what functions on tensors are made of.

A `Program` compiles a graph, opens it on a device for a group of ranks, and runs it with the memory of the tensors that a call gives.
`program()` keeps programs, so that a graph is compiled once a process.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import config, groups
from .errors import Error, GraphError, LaunchError, MismatchError, Unavailable
from .graph import Graph
from .groups import Group
from .kernel import Kernel, Places, Profile, Session, TensorInfo, before_launches, prepare
from .meeting import ASIDE, SECRET, launched_in_vain
from .tensors import ALIGNMENT, Memory, check, describe

__all__ = ["Program", "because", "listeners", "program"]

listeners: list[Callable[[Program, Profile], None]] = []
"""While there are any, programs run with stamped kernels, and each listener is told the profile of each run, on all ranks alike."""


_local = threading.local()


@contextmanager
def because(why: str) -> Iterator[None]:
    """A block in which programs are compiled for a reason, which other ranks are told where they do something else."""
    before = getattr(_local, "why", "")
    _local.why = why
    try:
        yield
    finally:
        _local.why = before


MOST_SEEN = 4096
"""Of so many values for launches a program on GPUs knows that ranks agreed on them."""


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
        self.from_end: tuple[str, ...] = ()
        """Dims and scalars whose negative values in memory count from the end of their range. Set it before the first run."""
        self._sessions: dict[bool, _Bound] = {}
        self._lost: dict[bool, dict[str, Any]] = {}  # memory of sessions that have to be opened anew
        self._generation = self.group.generation if self.group is not None else 0
        self._lock = threading.RLock()
        self._seen: dict[Any, tuple[str, int]] = {}  # on GPUs: what launches of these values are, and its mark
        self._doing = ""
        if self.group is not None:
            digest = zlib.crc32(f"{graph.text(canonical=True)}\n{sorted(self._options.items())!r}".encode())
            self._doing = f"runs '{self.name}'{SECRET}{digest:08x}{SECRET}"
            if device != "cpu":
                self.group.launching.add(self)

    @property
    def name(self) -> str:
        """The graph's."""
        return self.kernel.name

    def __call__(
        self,
        tensors: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
        what: str = "",
        same: bool = False,
        known: bool = False,
    ) -> None:
        """Runs the graph once, with tensors for its inputs, params, states and outputs by name.

        On the CPU it has run when this returns. On a GPU it is put on torch's current stream, and what fails raises at a later call; the
        tensors have to be there until then, which torch sees to for those that it allocated on that stream. A tensor has the kernel's
        dtype and shape, or on axis 0 as many rows as its dim in `values` says. What isn't contiguous or aligned to 16 bytes, has fewer
        rows, or shares memory with another that is written, is copied on the way. States and outputs that are left out have zeroed
        memory of the program's own. `what` says in errors what the ranks do. With `same` the mapping holds the same tensors, where they
        were, whenever it is the one of the call before: they aren't looked at again. With `known` all are torch's and just as the kernel
        has them, but for where they are.
        """
        if before_launches:
            prepare()
        if self.group is not None:
            groups.settle()
        with self._lock:
            stamped = bool(listeners) or config.meaning("profile")
            late: Error | None = self._together(what, values or {}, stamped) if self.group is not None else None
            bound = self._sessions.get(stamped)
            if bound is None:
                bound = self._sessions[stamped] = _Bound(self, stamped)
                bound.own = self._lost.pop(stamped, {})
            try:
                bound.run(tensors, values or {}, same, known)
            except KeyboardInterrupt:
                self._interrupted()
                raise
            except LaunchError as error:
                if self.device == "cpu" or "wait says why" not in str(error):
                    raise
                late = late or bound.why(error)
                bound.run(tensors, values or {}, same, known)
            if late is not None:
                raise late  # an earlier launch failed; this one is begun, as the other ranks do
            if listeners:
                bound.session.wait()
                profile = bound.session.profile()
                for listener in listeners:
                    listener(self, profile)

    def _together(self, what: str, values: Mapping[str, Any], stamped: bool) -> MismatchError | None:
        """Meets the other ranks before a run. Gives the error of an earlier launch in which the other ranks took no part."""
        try:
            self._meet(what, values, stamped)
        except MismatchError as error:
            if not launched_in_vain(error)[1]:
                raise
            try:
                self._meet(what, values, stamped)
            except MismatchError as now:
                now.__cause__ = error
                raise
            return error
        return None

    def _meet(self, what: str, values: Mapping[str, Any], stamped: bool) -> None:
        """Ranks on the CPU begin together, and open anew what one of them has lost; on GPUs for values that are new."""
        assert self.group is not None
        if self.device == "cpu":
            generation = self.group.meet(self._text(what, values, stamped))
            if generation != self._generation:
                self._drop()
                self._generation = generation
            return
        key = (what, stamped, *((name, value if type(value) is int else None) for name, value in values.items()))
        seen = self._seen.get(key)
        if seen is not None:
            self.group.begin(*seen)
            return
        text = self._text(what, values, stamped)
        self.group.meet(text)
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[key] = text, zlib.crc32(text.encode())

    def _text(self, what: str, values: Mapping[str, Any], stamped: bool) -> str:
        """The description of a run that other ranks get."""
        if what:
            return what
        numbers = "".join(f", {name} = {value if isinstance(value, int) else 'in memory'}" for name, value in values.items())
        return f"{self._doing}{numbers}{' under a profiler' if stamped else ''}"

    def launches(self, text: str) -> bool:
        """Whether this is what a launch of it was called."""
        return any(known == text for known, _ in self._seen.values())

    def refuse(self) -> None:
        """Has other ranks' launches of it end, of which this rank takes no part: they see that this one can't begin."""
        for bound in self._sessions.values():
            with contextlib.suppress(Error):
                bound.session._launch_placed(0, {"(elsewhere)": 0}, bound.places, 0)

    def conclude(self) -> None:
        """Hears together with other ranks how launches ended of which one took no part, so that all can go on."""
        for bound in self._sessions.values():
            with contextlib.suppress(Error):
                bound.session.wait()

    def _interrupted(self) -> None:
        """Called when Ctrl-C has broken the session."""
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


class Repeated:
    """Runs of a program on a GPU that differ in where one tensor lies, in as few steps as can be.

    `name`: the tensor, the only one; `values` and `what` are as of a run. The program has run so before.
    """

    def __init__(self, program: Program, name: str, values: Mapping[str, int], what: str) -> None:
        self._program = program
        self._bound = bound = program._sessions[False]
        self._places = Places(1)
        self._tensor = bound.slots[name].index
        self._launch = bound.session._repeated(values, self._places, 1)
        self._what, self._mark = what, zlib.crc32(what.encode())
        self._stream, self._gpu = bound.stream, program.index
        self._address = 0

    def __call__(self, address: int) -> bool:
        """Runs it with the tensor at an address, which has all that the kernel wants of it; False: that isn't possible now."""
        program = self._program
        if listeners or config.meaning("profile"):
            return False
        if before_launches:
            prepare()
        groups.settle()
        with program._lock:
            if program._sessions.get(False) is not self._bound:
                return False
            late: Error | None = self._begin(program.group) if program.group is not None else None
            if address != self._address:
                self._places.put(0, self._tensor, address)
                self._address = address
            stream = self._stream(self._gpu)  # type: ignore[misc]
            try:
                self._launch(stream)
            except KeyboardInterrupt:
                program._interrupted()
                raise
            except LaunchError as error:
                if "wait says why" not in str(error):
                    raise
                late = late or self._bound.why(error)
                self._launch(stream)
            if late is not None:
                raise late  # an earlier launch failed; this one is begun, as the other ranks do
        return True

    def _begin(self, group: Group) -> MismatchError | None:
        """As `Program._together`."""
        try:
            group.begin(self._what, self._mark)
        except MismatchError as error:
            if not launched_in_vain(error)[1]:
                raise
            try:
                group.begin(self._what, self._mark)
            except MismatchError as now:
                now.__cause__ = error
                raise
            return error
        return None


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
        self.session.count_from_end(*program.from_end)
        self.program = program
        self.slots = {info.name: _Slot(i, info, program.device, program.index) for i, info in enumerate(program.kernel.tensors)}
        self.own: dict[str, Any] = {}  # memory of the program's, by name
        self.places = Places(len(self.slots))
        self.safe: set[tuple[Any, ...]] = set()  # where tensors were that needed no copies: names, then addresses
        self.last: tuple[Any, ...] = ()  # what `places` has
        self.same: Mapping[str, Any] | None = None  # whose tensors these are, if they stay there and nothing was copied
        self.stream = stream_getter() if program.device == "cuda" else None
        torch = sys.modules.get("torch")
        self.plain: tuple[Any, ...] = () if torch is None else (torch.Tensor, torch.nn.Parameter)
        self.strided = None if torch is None else torch.strided

    def why(self, error: Error) -> Error:
        """Why a launch was stopped, which the ranks hear together; the session can go on then."""
        try:
            self.session.wait()
        except Error as told:
            return told
        return error

    def run(self, tensors: Mapping[str, Any], values: Mapping[str, Any], same: bool, known: bool = False) -> None:
        if same and self.same is tensors:
            self._launch(self.last, values)
            return
        self.same = None
        addresses = (*tensors, *[tensor.data_ptr() for tensor in tensors.values()]) if known else None
        key = addresses or (self._quick(tensors) if self.plain else None)
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


def stream_getter() -> Callable[[int], int]:
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
    doing = f"compiles a graph{ASIDE} '{graph.name}'{getattr(_local, 'why', '')}"
    group.compare(f"{text}\n{sorted(options.items())!r}", f"the graph '{graph.name}' or its options", doing=doing)
    answer, kernel = "", None
    if group.rank == 0:
        try:
            kernel = graph.compile(**options)
            answer = "+" + kernel.source
        except Error as error:
            answer = f"-{type(error).__name__}\n{error}"
            failed = error
    answer = group.exchange(answer, max(group.timeout, groups.TIMEOUT))[0]  # compiling takes rank 0 its time
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
