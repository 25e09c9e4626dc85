"""Kernels, and sessions in which they run."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from . import _native
from .dtypes import DType, DTypeLike
from .errors import Diagnostic, Error, nested
from .tensors import Memory, check, describe, shape_text
from .words import suggestion

__all__ = ["Kernel", "Session", "TensorInfo", "VariableInfo"]

_DTYPES = tuple(DType)

MOST_REPLACED = 64
"""When so many tensors were replaced by others, a session on GPUs looks whether launches that may read them have ended."""

before_launches: list[Callable[[], None]] = []
"""Called before each launch of a session, by who has work that a launch may depend on."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that the caller provides memory for.

    `kind` is "input", "param", "state" or "output". `shape` is that of one rank, with dims at their maxima; `bytes` are those of it.
    """

    name: str
    kind: str
    dtype: DType
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class VariableInfo:
    """A dim or a scalar: an integer that each launch is given, from `lowest` to `highest`, both included."""

    name: str
    lowest: int
    highest: int


class Kernel:
    """A compiled graph: proved, and written as CUDA. Immutable, for any number of threads. Can't be pickled: its `source` can."""

    _handle: _native.Handle

    def __init__(self) -> None:
        raise TypeError("a Kernel comes from Graph.compile(), Kernel.load() or Kernel.from_source()")

    @classmethod
    def _made(cls, pointer: int) -> Kernel:
        kernel = cls.__new__(cls)
        kernel._handle = _native.Handle(kernel, pointer, "maco_kernel_free")
        with kernel._handle.use() as own:
            dll = _native.library()
            kernel._world = dll.maco_kernel_world(own)
            kernel._tensors = tuple(_tensor(own, i) for i in range(dll.maco_kernel_tensors(own)))
            kernel._warnings = nested(_native.diagnostics("maco_kernel", own))
        return kernel

    _world: int
    _tensors: tuple[TensorInfo, ...]
    _warnings: tuple[Diagnostic, ...]

    @classmethod
    def from_source(cls, source: str) -> Kernel:
        """Makes a kernel from the text of a kernel.cu. Raises `maco.Error` if it is none."""
        return cls._made(_native.call("maco_kernel_from_source", _native.encoded(source, "the source")))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Kernel:
        """Reads a file that `save` or `macoc` wrote. Its report is empty. Raises `maco.Error` if it can't be read or is none."""
        try:
            source = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"'{os.fspath(path)}' can't be read: {error}") from error
        try:
            return cls.from_source(source)
        except Error as error:
            raise Error(f"'{os.fspath(path)}': {error}", code=error.code, diagnostics=error.diagnostics) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the source, kernel.cu, which needs no other file. A file that is there is replaced at once, never in part."""
        target = Path(path)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            part.write_text(self.source, encoding="utf-8")
            os.replace(part, target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise Error(f"'{target}' can't be written: {error}") from error

    @property
    def source(self) -> str:
        """kernel.cu: one file that needs no others."""
        with self._handle.use() as own:
            text: bytes = _native.library().maco_kernel_source(own)
        return text.decode()

    @property
    def report(self) -> str:
        """What became of the graph, for people: roles, tasks, fusion, waits, memory. Empty for a kernel that came as source."""
        with self._handle.use() as own:
            text: bytes = _native.library().maco_kernel_report(own)
        return text.decode()

    @property
    def world(self) -> int:
        """How many ranks it runs on."""
        return self._world

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """The tensors that the caller provides memory for, in the order in which the graph declares them."""
        return self._tensors

    @property
    def name(self) -> str:
        """The graph's name."""
        with self._handle.use() as own:
            text: bytes = _native.library().maco_kernel_name(own)
        return text.decode()

    @property
    def target(self) -> str:
        """What it was compiled for: "sm_90a", "cpu"."""
        with self._handle.use() as own:
            text: bytes = _native.library().maco_kernel_target(own)
        return text.decode()

    @property
    def dims(self) -> tuple[VariableInfo, ...]:
        """Numbers of rows that a launch may be given."""
        return self._variables(True)

    @property
    def scalars(self) -> tuple[VariableInfo, ...]:
        """Numbers that a launch must be given."""
        return self._variables(False)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings of the compiler, with lines of the Python that built the graph. Empty of a kernel that came as source."""
        return self._warnings

    def _variables(self, dims: bool) -> tuple[VariableInfo, ...]:
        made = []
        info = _native.VariableInfo(size=ctypes.sizeof(_native.VariableInfo))
        with self._handle.use() as own:
            for i in range(_native.library().maco_kernel_variables(own)):
                _native.call("maco_kernel_variable", own, i, ctypes.byref(info))
                if bool(info.is_dim) == dims:
                    made.append(VariableInfo(info.name.decode(), info.lowest, info.highest))
        return tuple(made)

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Kernel: pickle its graph, or its source for Kernel.from_source()")

    def __repr__(self) -> str:
        return f"<maco.Kernel '{self.name}' for {self.target} on {self.world} rank{'' if self.world == 1 else 's'}>"


def _tensor(kernel: int, index: int) -> TensorInfo:
    info = _native.TensorInfo()
    _native.call("maco_kernel_tensor", kernel, index, ctypes.byref(info))
    shape = tuple(info.shape[: info.axes])
    return TensorInfo(info.name.decode(), _native.KINDS[info.kind], _DTYPES[info.dtype], shape, info.bytes)


@dataclass(frozen=True)
class Profile:
    """Where one launch's time went. `table`: for people, op by op, with the critical path. `trace`: JSON for chrome://tracing, Perfetto."""

    table: str
    trace: str


Values = Mapping[str, Any]


class Session:
    """A kernel with its memory on all ranks, or on the one of this process, ready to run.

    `device`: "cuda", rank r on GPU r / `ranks_per_gpu`, or "cpu", ranks and SMs as threads of this process. If it isn't given it is what
    MACO_DEVICE says, else "cpu" for kernels of the target cpu, and "cuda" for others. `timeout`: how many seconds a launch may go on
    without progress of any rank, from 0.001 to a year. `process_a_rank`: the ranks run in a process each, and this one runs the rank that
    its environment names (RANK and WORLD_SIZE, or MPI's); all of them then make the same calls in one order. `peer_memory`: None, "nccl" or
    "nvshmem". `rank` and `group`, of a process a rank: which rank this one runs, whatever its environment says, and the name under which
    they meet: the same for all of them, another for every other group on this host. `gpu`: the number of this process's GPU, with
    `process_a_rank`.

    `profile`: tasks stamp their times, for `profile()`; a few percent slower. `order`, on the CPU: tasks of all ranks take turns
    in an order that this seed decides, always the same. `progress` is told what begins while the session is opened ("" at the end), maybe
    in another thread; what it raises is printed and ignored.

    Opening compiles the kernel's code for the device, or takes it from a cache: seconds. Raises `maco.Unavailable` where the machine lacks
    what it needs, and `maco.MismatchError` where processes give different kernels or options.

    Every tensor of the kernel needs memory before the first launch: the caller's (`bind`), another session's (`share`) or the session's
    own (`allocate`). Launches of sessions that share memory, or GPUs, must not overlap.

    Calls from several threads wait for each other. Ctrl-C stops the launches that a call waits for, on all ranks, and the session can be
    used again. If they haven't stopped within 10 seconds the call ends nevertheless, and the session is broken: each call but `close`
    raises `maco.Error`; memory that was bound stays alive until those launches have ended.

    A session is closed when it is left as a context, by `close`, or when nobody holds it any more. It can't be pickled.
    """

    def __init__(
        self,
        kernel: Kernel,
        device: Literal["cuda", "cpu"] | None = None,
        ranks_per_gpu: int = 1,
        timeout: float = 30.0,
        process_a_rank: bool = False,
        peer_memory: Literal["nccl", "nvshmem"] | None = None,
        *,
        rank: int | None = None,
        group: str | None = None,
        gpu: int | None = None,
        profile: bool = False,
        order: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"a session runs a maco.Kernel, not a {type(kernel).__name__}; Graph.compile() gives one")
        chosen = device or _native.environment_device() or ("cpu" if kernel.target == "cpu" else "cuda")
        if chosen not in _native.DEVICES:
            raise Error(f"the device is 'cuda' or 'cpu', not '{chosen}'")
        milliseconds = timeout * 1000
        if not 1 <= milliseconds <= 365 * 24 * 3600 * 1000:
            raise Error(f"the time-out is from 0.001 seconds to a year, not {timeout}")
        self._kernel = kernel
        self._device = chosen
        self._lock = threading.Lock()
        self._broken = ""
        self._stamped = bool(profile)
        self._moved = False  # memory was bound, and not looked at together since
        self._torch_gpus: dict[int, int] = {}  # of ranks that have tensors of torch's
        self._from_end: set[str] = set()  # dims and scalars, see `count_from_end`
        self._forms: dict[str, tuple[int, bool]] = {}  # what maco_session_read_as was told
        self._stream = (ctypes.c_void_p * 1)()  # of `_launch_placed`, as the next
        self._error = ctypes.c_void_p()
        self._tensors = {info.name: info for info in kernel.tensors}
        if (rank is None) != (group is None):
            # Without a group of its own, a rank of a kernel of one is the only one.
            if rank != 0 or kernel.world != 1:
                raise Error("rank= and group= belong together")
            group = "alone"
        self._here = None if not process_a_rank else _own_rank(kernel.world) if rank is None else operator.index(rank)
        self._ranks: tuple[int, ...] = tuple(range(kernel.world)) if self._here is None else (self._here,)
        self._ranks_per_gpu = ranks_per_gpu
        told = _native.PROGRESS(lambda _, what: progress(what.decode())) if progress else _native.PROGRESS()
        options = _native.SessionOptions(
            size=ctypes.sizeof(_native.SessionOptions),
            device=_native.DEVICES[chosen],
            ranks_per_gpu=operator.index(ranks_per_gpu),
            timeout_ms=round(milliseconds),
            process_a_rank=bool(process_a_rank),
            peer_memory=None if peer_memory is None else _native.encoded(peer_memory, "the peer memory"),
            group=None if group is None else _native.encoded(group, "the group"),
            rank=0 if rank is None else operator.index(rank),
            has_gpu=gpu is not None,
            gpu=0 if gpu is None else operator.index(gpu),
            profile=bool(profile),
            has_order=order is not None,
            order=0 if order is None else operator.index(order),
            progress=told,
        )
        if chosen == "cuda":
            _native.prefer_packages()
        pointer = kernel._handle.begin()

        def work() -> int:
            made: int = _native.call("maco_session_open", pointer, ctypes.byref(options))
            return made

        def dispose(late: int) -> None:
            _native.library().maco_session_free(late)

        self._handle = _native.Handle(self, _native.interruptible(work, dispose=dispose, last=kernel._handle.done), "maco_session_free")

    @property
    def kernel(self) -> Kernel:
        """What it was opened with."""
        return self._kernel

    @property
    def device(self) -> str:
        """Where its ranks run: "cuda" or "cpu"."""
        return self._device

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of this process."""
        return self._ranks

    # ---- memory

    def bind(self, name: str, tensor: Any, rank: int | None = None, *, dtype: DTypeLike | None = None) -> None:
        """Lets a tensor live in the memory of `tensor` from the next launch on, without a copy, and keeps it alive.

        `tensor` is torch's or NumPy's, or has __dlpack__ or __cuda_array_interface__. It must have the kernel's dtype and shape (dims at
        their maxima), be contiguous, on the rank's device and aligned to 16 bytes. `rank` may be left out where this process has one. With
        `dtype` elements of as many bytes are taken for it, as uint16 for bf16. No two tensors of a rank may share memory.
        """
        info, at = self._find(name), self._rank(rank, "bind")
        memory = describe(tensor, name, dtype)
        index = None if self._here is not None or self._device == "cpu" else at // self._ranks_per_gpu
        written = info.kind in ("state", "output")
        check(memory, name, dtype=info.dtype, shape=info.shape, device=self._device, index=index, writable=written)
        self._call("maco_session_bind", at, _name(name), memory.address, memory.bytes, waits=self._device == "cuda")
        self._replace((at, name), memory)
        self._moved = True
        torch = sys.modules.get("torch")
        if self._device == "cuda" and torch is not None and isinstance(memory.keep, torch.Tensor):
            self._torch_gpus[at] = memory.index

    def share(self, other: Session) -> None:
        """Lets each param and state live where `other` has the one of that name, dtype and shape; keeps `other`'s memory alive.

        Both have as many ranks and one kind of device.
        """
        if not isinstance(other, Session):
            raise TypeError(f"share() takes a maco.Session, not a {type(other).__name__}")
        other._usable()
        with other._handle.use() as theirs:
            self._call("maco_session_share", theirs, waits=self._device == "cuda")
        self._handle.keep["share", id(other)] = _Borrowed(other)

    def allocate(self) -> None:
        """Gives zeroed memory of the session's own to every tensor that has none."""
        self._call("maco_session_allocate", waits=self._device == "cuda")

    def address(self, name: str, rank: int | None = None) -> int | None:
        """Where a tensor lives, in memory of its rank's device; None: nowhere yet."""
        self._find(name)
        found: int | None = self._call("maco_session_address", self._rank(rank, "address"), _name(name))
        return found

    def write(self, name: str, array: Any, rank: int | None = None, *, dtype: DTypeLike | None = None) -> None:
        """Copies an array or tensor of the host's into a tensor; without `rank` to all ranks of this process.

        It has the kernel's dtype and shape, or fewer rows on axis 0, which become the first. What isn't contiguous, or is a torch tensor on
        a GPU, is copied on the way. `dtype` as of `bind`. The tensor must live somewhere.
        """
        info = self._find(name)
        memory = _on_host(array, name, dtype)
        check(memory, name, dtype=info.dtype, shape=info.shape, rows_up_to=True, device="cpu", aligned=False)
        if not memory.bytes:
            return
        for at in self.ranks if rank is None else (self._rank(rank, "write"),):
            self._call("maco_session_write", at, _name(name), memory.address, memory.bytes, waits=self._device == "cuda")

    def read(self, name: str, rank: int | None = None, *, rows: int | None = None, to: Literal["numpy", "torch"] | None = None) -> Any:
        """A copy of a tensor in host memory, as NumPy array or torch tensor.

        `rank` may be left out where this process has one. `rows`: only the first so many of axis 0, those of the launch where a dim counts
        them. `to` is "numpy" (bf16 and f8 as ml_dtypes' types where that is installed, else as uint16 and uint8) or "torch"; if it isn't
        given, "numpy" where NumPy is installed, else "torch".
        """
        info, at = self._find(name), self._rank(rank, "read")
        shape = info.shape
        if rows is not None:
            count = operator.index(rows)
            if not 0 <= count <= shape[0]:
                raise Error(f"'{name}' has {shape[0]} rows, not {count}")
            shape = (count, *shape[1:])
        made = _empty(shape, info.dtype, to)
        memory = describe(made, name, info.dtype)
        if memory.bytes:
            self._call("maco_session_read", at, _name(name), memory.address, memory.bytes, waits=self._device == "cuda")
        return made

    def load(self, weights: str, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> None:
        """Fills the params of this process's ranks with what the files of a checkpoint have, as weights.json says (docs/models.md).

        `weights` is the text of weights.json, `folder` the checkpoint's. Params without memory get some. `progress` is told how many
        bytes of how many are there, maybe in another thread; what it raises is printed and ignored. Raises `maco.Error` if a file is
        missing, damaged or another one. Ctrl-C ends it; what the params have then isn't known.
        """
        told = _native.LOADED(lambda _, done, total: progress(done, total)) if progress else _native.LOADED()
        text, path = _native.encoded(weights, "weights.json"), os.fsencode(folder)
        self._call("maco_session_load", text, path, told, None, waits=True)

    # ---- launches

    def run(self, values: Values | None = None, /, **named: int) -> None:
        """Runs the kernel once on all ranks and waits for it.

        Dims and scalars are keywords, or in a mapping by name. Scalars must be given; a dim that isn't has its maximum. Raises
        `maco.LaunchError` if the launch was stopped, by a time-out or an index out of range; the session can run again then.
        """
        prepare()
        if self._moved:
            self._check_apart()
        given, count = _numbers(_merged(values, named))
        self._call("maco_session_run", given, count, waits=True)
        self._handle.keep.pop("replaced", None)

    def launch(self, stream: Any = None, values: Values | None = None, /, **named: Any) -> None:
        """Puts a launch of all ranks on streams and returns; on the CPU it has ended then.

        `stream` is a CUDA stream (torch's, an integer, or what has `__cuda_stream__`), or a list of one for each rank of this process. If
        it isn't given, torch's current streams are taken where a torch CUDA tensor is bound, else the session's own. A value may be an
        i32 or i64 tensor of one element in memory of the ranks' devices (a list: one a rank), which the launch reads when it begins.
        Wrong values raise `maco.Error` at once; a launch that fails raises at the next `launch` or `wait`.
        """
        prepare()
        if self._moved:
            self._check_apart()
        merged = _merged(values, named)
        placed = {name: value for name, value in merged.items() if type(value) is not int and _is_memory(value)}
        numbers = {name: value for name, value in merged.items() if name not in placed} if placed else merged
        given, count = _numbers(numbers) if numbers else (None, 0)
        addresses, keep = self._addresses(placed) if placed else (None, {})
        streams = self._streams(stream)
        self._call("maco_session_launch_at", given, count, addresses, len(placed), streams, waits=self._device == "cpu")
        # The GPU reads them later.
        for name, memory in keep.items():
            self._replace(("value", name), memory)

    def wait(self) -> None:
        """Waits for all launches. Raises `maco.LaunchError` if any of them failed."""
        self._call("maco_session_wait", waits=True)
        self._handle.keep.pop("replaced", None)

    def ended(self) -> bool:
        """Whether all launches have ended. Raises `maco.LaunchError` if any of them failed."""
        all_ended = ctypes.c_int()
        self._call("maco_session_ended", ctypes.byref(all_ended))
        return bool(all_ended.value)

    def profile(self) -> Profile:
        """Where the time of the last launch went, of a session that was opened with `profile=True`."""
        self._usable()
        if not self._stamped:
            raise Error("the session stamps no times: open it with profile=True, as in maco.Session(kernel, profile=True)")
        table, trace = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("maco_session_profile", ctypes.byref(table), ctypes.byref(trace))
        return Profile(_native.taken_string(table.value), _native.taken_string(trace.value))

    def bench(self, launches: int, values: Values | None = None, /, **named: int) -> float:
        """The median, over `launches` launches after some for warm-up, of the slowest rank's microseconds."""
        if self._moved:
            self._check_apart()
        given, count = _numbers(_merged(values, named))
        microseconds = ctypes.c_double()
        self._call("maco_session_bench", given, count, operator.index(launches), ctypes.byref(microseconds), waits=True)
        return microseconds.value

    def _launch_placed(self, stream: int, values: Values, places: Places, count: int) -> None:
        """A launch of this process's one rank with tensors in the first `count` places. The caller keeps their memory."""
        placed = {name: value for name, value in values.items() if type(value) is not int and _is_memory(value)} if values else {}
        numbers = {name: value for name, value in values.items() if name not in placed} if placed else values
        given, number = _numbers(numbers) if numbers else (None, 0)
        addresses, _ = self._addresses(placed) if placed else (None, {})
        launch = _native.library().maco_session_launch_with
        with self._lock:
            if self._broken:
                raise Error(self._broken)
            own = self._handle.begin()
            try:
                self._stream[0] = stream
                error = self._error
                if launch(own, given, number, addresses, len(placed), places.array, count, self._stream, ctypes.byref(error)):
                    self._error = ctypes.c_void_p()
                    raise _native.taken_error(error)
            finally:
                self._handle.done()

    def _repeated(self, values: Mapping[str, int], places: Places, count: int) -> Callable[[int], None]:
        """Launches on a stream with these values, and tensors in the first `count` places, whatever these are by then."""
        given, number = _numbers(values)
        launch, lock, handle, streams, error = (
            _native.library().maco_session_launch_with,
            self._lock,
            self._handle,
            (ctypes.c_void_p * 1)(),
            ctypes.c_void_p(),
        )
        array, told = places.array, ctypes.byref(error)

        def again(stream: int) -> None:
            with lock:
                if self._broken:
                    raise Error(self._broken)
                own = handle.begin()
                try:
                    streams[0] = stream
                    if launch(own, given, number, None, 0, array, count, streams, told):
                        raised = _native.taken_error(ctypes.c_void_p(error.value))
                        error.value = None
                        raise raised
                finally:
                    handle.done()

        return again

    def _launch_given(self, given: Any, number: int, places: Any, count: int, streams: Any = None) -> None:
        """A launch of values, places and streams (of all ranks here; None: the session's own) as the library takes them. On the CPU it
        has ended then."""
        if self._device == "cpu":
            self._call("maco_session_launch_with", given, number, None, 0, places, count, None, waits=True, behind="maco_session_wait")
            return
        with self._lock:
            if self._broken:
                raise Error(self._broken)
            own = self._handle.begin()
            try:
                error = self._error
                if _native.library().maco_session_launch_with(own, given, number, None, 0, places, count, streams, ctypes.byref(error)):
                    self._error = ctypes.c_void_p()
                    raise _native.taken_error(error)
            finally:
                self._handle.done()

    def _stop(self) -> None:
        """Ends the launches that another thread waits for."""
        own = self._handle.begin()
        try:
            _native.library().maco_session_stop(own)
        finally:
            self._handle.done()

    def _run_placed(self, values: Values, places: Places, count: int) -> None:
        """The same on the session's own stream; waits for it."""
        given, number = _numbers(values) if values else (None, 0)
        self._call("maco_session_launch_with", given, number, None, 0, places.array, count, None, waits=True, behind="maco_session_wait")

    # ---- its end

    def close(self) -> None:
        """Frees the session and lets go of what is bound. Doing so twice is allowed."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle.closed

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Session: pickle its graph, or its kernel's source, and open another")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "broken" if self._broken else "open"
        return f"<maco.Session of '{self._kernel.name}' on {self._device}, {state}>"

    # ---- inside

    def _usable(self) -> None:
        if self._broken:
            raise Error(self._broken)
        if self.closed:
            raise Error("the session was closed")

    def _call(self, function: str, *arguments: Any, waits: bool = False, behind: str = "") -> Any:
        """Calls a function of the session; if it `waits`, so that Ctrl-C ends that, as of the function `behind` it."""
        _native.library()  # a forked child is told before it waits for a lock of its parent's
        with self._lock:
            self._usable()
            own = self._handle.begin()
            if not waits:
                try:
                    return _native.call(function, own, *arguments)
                finally:
                    self._handle.done()

            def work() -> Any:
                given = _native.call(function, own, *arguments)
                return _native.call(behind, own) if behind else given

            def stop() -> None:
                _native.library().maco_session_stop(own)

            return _native.interruptible(work, last=self._handle.done, stop=stop, interrupted=self._break)

    def _check_apart(self) -> None:
        """Raises `maco.Error` if tensors of a rank share bound memory of which one is written."""
        bound: list[tuple[int, int, int, str]] = []
        for key, memory in self._handle.keep.items():
            if isinstance(memory, Memory) and memory.bytes and key[1] in self._tensors:
                bound.append((key[0], memory.address, memory.address + memory.bytes, key[1]))
        bound.sort()
        for i, (rank, _, end, name) in enumerate(bound):
            for other_rank, begin, _, other in bound[i + 1 :]:
                if other_rank != rank or begin >= end:
                    break
                if any(self._tensors[one].kind in ("state", "output") for one in (name, other)):
                    raise Error(f"'{name}' and '{other}' of rank {rank} are bound to memory that overlaps, and a launch writes it")
        self._moved = False

    def _break(self) -> None:
        self._broken = "the session was interrupted by Ctrl-C and can't be used any more; open another"

    def _replace(self, key: tuple[Any, str], memory: Any) -> None:
        """Keeps memory alive; what was kept in its place until launches that may use it have ended."""
        old = self._handle.keep.get(key)
        if old is not None and self._device == "cuda" and not _same_place(old, memory):
            replaced = self._handle.keep.setdefault("replaced", [])
            replaced.append(old)
            if len(replaced) % MOST_REPLACED == 0:
                self._let_go(len(replaced) >= 16 * MOST_REPLACED)
        self._handle.keep[key] = memory

    def _let_go(self, patiently: bool) -> None:
        """Lets go of replaced memory, if the launches that may use it have ended; `patiently` waits for that."""
        while not self.ended():
            if not patiently:
                return
            time.sleep(0.001)
        self._handle.keep.pop("replaced", None)

    def _find(self, name: str) -> TensorInfo:
        info = self._tensors.get(name)
        if info is None:
            raise Error(f"'{self._kernel.name}' has no tensor '{name}'; {suggestion(name, self._tensors)}")
        return info

    def _rank(self, rank: int | None, what: str) -> int:
        if rank is None:
            if len(self.ranks) != 1:
                raise Error(f"{what}() must say which rank is meant: rank=0 to rank={self._kernel.world - 1}")
            return self.ranks[0]
        at = operator.index(rank)
        if at not in self.ranks:
            raise Error(f"this process has the ranks {', '.join(map(str, self.ranks))}, not {at}")
        return at

    def _addresses(self, placed: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        made = (_native.Address * len(placed))()
        keep: dict[str, Any] = {}
        for slot, (name, given) in zip(made, placed.items(), strict=True):
            ones = list(given) if isinstance(given, (list, tuple)) else [given]
            if len(ones) != len(self.ranks):
                raise Error(f"'{name}' has {len(ones)} tensors for {len(self.ranks)} ranks")
            found = [self._integer(one, name) for one in ones]
            if any(size != found[0][1] for _, size in found):
                raise Error(f"'{name}' is i32 of some ranks and i64 of others")
            at = (ctypes.c_void_p * len(found))(*[address for address, _ in found])
            slot.name, slot.at = _name(name), at
            keep[name] = (ones, at)
            self._read_as(name, found[0][1])
        return made, keep

    def _integer(self, tensor: Any, name: str) -> tuple[int, int]:
        """Where an integer lies that a launch reads, and its bytes."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        half: Any = None  # as what integers of 64 bits are two of
        if torch is not None and type(tensor) is torch.Tensor:
            if tensor.dtype in (torch.int64, torch.int32) and tensor.numel() == 1 and tensor.device.type == self._device:
                return tensor.data_ptr(), tensor.element_size()
            half = torch.int32 if tensor.dtype is torch.int64 else None
        elif numpy is not None and isinstance(tensor, numpy.ndarray):
            half = numpy.int32 if tensor.dtype == numpy.int64 else None
        wide = half is not None
        memory = describe(tensor.reshape(-1).view(half) if wide else tensor, name)
        check(memory, name, dtype=DType.i32, device=self._device, aligned=False)
        if memory.elements != (2 if wide else 1):
            raise Error(f"'{name}' is a tensor of one element, but the shape is {shape_text(tuple(tensor.shape))}")
        return memory.address, 8 if wide else 4

    def _read_as(self, name: str, size: int) -> None:
        """Says how launches read a dim or scalar in memory, unless they do so already."""
        form = size, name in self._from_end
        if self._forms.get(name, (4, False)) != form:
            self._call("maco_session_read_as", _name(name), *form)
            self._forms[name] = form

    def count_from_end(self, *names: str) -> None:
        """Makes the launches that follow count negative values of these dims and scalars from the end of their range, where they find
        them in memory: -1 is the largest."""
        known = [info.name for info in (*self._kernel.dims, *self._kernel.scalars)]
        for name in names:
            if name not in known:
                raise Error(f"'{name}' is no dim or scalar of '{self._kernel.name}'; it has {', '.join(known) or 'none'}")
        self._from_end |= set(names)

    def _streams(self, stream: Any) -> Any:
        if stream is None:
            stream = self._torch_streams()
            if stream is None:
                return None
        ones = list(stream) if isinstance(stream, (list, tuple)) else [stream]
        if self._device == "cpu":
            raise Error("streams are CUDA's, but the session is on the CPU")
        if len(ones) != len(self.ranks):
            raise Error(f"there are {len(ones)} streams for {len(self.ranks)} ranks")
        return (ctypes.c_void_p * len(ones))(*[_stream(one) for one in ones])

    def _torch_streams(self) -> list[int] | None:
        if not self._torch_gpus:
            return None
        current = sys.modules["torch"].cuda.current_stream
        return [current(self._torch_gpus.get(rank, rank // self._ranks_per_gpu)).cuda_stream for rank in self.ranks]


class Places:
    """Where tensors live in one launch: `maco_place`s of one rank, to be filled in again each time."""

    def __init__(self, most: int) -> None:
        self._addresses = (ctypes.c_void_p * most)()
        self.array = (_native.Place * most)()
        start = ctypes.addressof(self._addresses)
        for i, place in enumerate(self.array):
            place.at = ctypes.cast(start + i * ctypes.sizeof(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))

    def put(self, i: int, tensor: int, address: int) -> None:
        """Place `i`: the kernel's tensor number `tensor`, at `address`."""
        self.array[i].tensor = tensor
        self._addresses[i] = address


class _Borrowed:
    """Keeps another session's memory while this is held, also if that one is closed."""

    def __init__(self, session: Session) -> None:
        session._handle.begin()
        weakref.finalize(self, session._handle.done)
        self.session = session


def prepare() -> None:
    """Has work done that a launch may depend on."""
    for one in before_launches:
        one()


def _same_place(old: Any, new: Any) -> bool:
    """Whether what is kept is where the other is, so that it keeps that alive, too."""
    first, second = ([one] if isinstance(one, Memory) else one[0] if isinstance(one, tuple) else [] for one in (old, new))
    return bool(first) and [(one.address, one.bytes) for one in first] == [(one.address, one.bytes) for one in second]


def _name(name: str) -> bytes:
    return _native.encoded(name, "a name")


def _stream(stream: Any) -> int | None:
    handle = getattr(stream, "cuda_stream", None)
    if handle is None and hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__
        handle = (found() if callable(found) else found)[1]
    if handle is None:
        handle = stream
    try:
        return operator.index(handle) or None
    except TypeError:
        raise TypeError(f"a CUDA stream is expected, not {type(stream).__name__}") from None


def _is_memory(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return True
    if isinstance(value, int):
        return False
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def _merged(values: Values | None, named: Mapping[str, Any]) -> Mapping[str, Any]:
    if values is None:
        return named
    if not isinstance(values, Mapping):
        raise TypeError(f"values of dims and scalars are keywords or a mapping by name, not a {type(values).__name__}")
    return {**values, **named} if values else named


def _numbers(values: Mapping[str, Any]) -> tuple[Any, int]:
    made = (_native.Value * len(values))()
    for slot, (name, value) in zip(made, values.items(), strict=True):
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"'{name}' is an integer, not a {type(value).__name__}") from None
        if not -(2**63) <= number < 2**63:
            raise Error(f"'{name}' is {number}, which does not fit 64 bits")
        slot.name, slot.value = _name(name), number
    return made, len(values)


def _own_rank(world: int) -> int:
    for variable in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        text = os.environ.get(variable, "")
        if text.isdigit():
            return min(int(text), max(world - 1, 0))
    return 0


def _on_host(array: Any, name: str, dtype: DTypeLike | None) -> Memory:
    """The memory of an array in host memory, contiguous."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return describe(array.detach().cpu().contiguous(), name, dtype)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic)):
        return describe(numpy.ascontiguousarray(array) if array.ndim else numpy.asarray(array), name, dtype)
    return describe(array, name, dtype)


def _empty(shape: Sequence[int], dtype: DType, to: str | None) -> Any:
    if to not in (None, "numpy", "torch"):
        raise Error(f"a tensor is read to 'numpy' or 'torch', not '{to}'")
    if to != "torch":
        try:
            import numpy

            return numpy.empty(shape, dtype.numpy())
        except ImportError:
            if to == "numpy":
                raise
    import torch

    return torch.empty(tuple(shape), dtype=dtype.torch())
