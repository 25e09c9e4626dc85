"""Torch ops that are written down instead of run, until somebody needs a value: then all of them run as one graph.

A `Recorder` sees the ops of a block by torch's dispatch mode, below autograd. Results are ordinary tensors, with memory that is filled
later: views of them, tensors that autograd saved, and gradients are right without further ado. What changes a tensor in place is
written down in its place. What isn't written down (random numbers, results whose shape depends on values, other devices, subclasses of
tensors) runs by itself, behind all that was written before.

Values are needed when such an op reads them, when Python asks for an element, when memory is looked at (`numpy()`, `data_ptr()`, a launch
of a kernel of MACO's), and when the block ends.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import groups, kernel, torch_ops  # noqa: F401  the ops of MACO's have to be there
from .compiled import tracing
from .errors import Error, MismatchError
from .recordable import Kind, Result, changed_by, drops, kind_of, looks, ordinary, shapes_of
from .segment import Call, Ref, Segment, Unknown, frozen
from .untraced import untraced

__all__ = ["Recorder", "current"]

MOST_COMPILED = 256
"""How many graphs are kept."""


# ---- the modes -------------------------------------------------------------------------------------------------------------------------


class _Dispatch(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder._seen(func, args, kwargs or {})


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if looks(func):
            self.recorder.flush()
        return func(*args, **(kwargs or {}))


class _Depth(threading.local):
    """How deep this thread is in what isn't to be recorded."""

    depth = 0


class Recorder:
    """Writes down what a block does, and runs it when a value is needed.

    `options` gives those of `fx.Options` but for `name`, for a device, and is asked at each run. Entering it begins to record in this
    thread; blocks of one recorder can be nested. Leaving the outermost runs what is left, also if the block raises; behind Ctrl-C it is
    dropped, and other ranks are told.
    """

    def __init__(self, name: str, options: Callable[[torch.device], dict[str, Any]] | None = None) -> None:
        self.name = name
        self.options = options or _no_options
        self.launches = 0
        """How many graphs have run."""
        self._segment = Segment()
        self._lock = threading.RLock()
        self._depth = 0
        self._paused = _Depth()
        self._modes: list[Any] = []
        self._thread: int | None = None
        self._outer: Recorder | None = None
        self._keys = _dispatch_keys()
        self._dropped: list[StorageWeakRef] = []

    # ---- blocks

    @untraced
    def __enter__(self) -> Recorder:
        if self._depth and self._thread != threading.get_ident():
            raise Error(f"this {self.name} is in use by another thread")
        if self._depth == 0:
            self._thread = threading.get_ident()
            self._outer = current()
            if self._outer is not None:
                self._outer.flush()
                self._outer._paused.depth += 1
            self._keys = _dispatch_keys()
            _stack().append(self)
            self._modes = [_Functions(self), _Dispatch(self)]
            for mode in self._modes:
                mode.__enter__()
        self._depth += 1
        return self

    @untraced
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        try:
            if kind is None:
                self.flush()
            elif issubclass(kind, KeyboardInterrupt):
                self._drop()
            else:
                self._flush_quietly()
        finally:
            for mode in reversed(self._modes):
                mode.__exit__(kind, error, trace)
            self._modes = []
            _stack().remove(self)
            if self._outer is not None:
                self._outer._paused.depth -= 1
                self._outer = None

    @property
    def recording(self) -> bool:
        """Whether a block of it is open in this thread."""
        return self._depth > 0 and self._thread == threading.get_ident()

    def _flush_quietly(self) -> None:
        """Flushes after an exception in the block; that one is raised, so errors of the flush are dropped."""
        try:
            self.flush()
        except Error:
            return

    @untraced
    def _drop(self) -> None:
        """Lets go of what is written down."""
        segment, self._segment = self._segment, Segment()
        if not segment.calls:
            return
        self._paused.depth += 1
        try:
            with ExitStack() as around:
                self._alone(around)
                memory = segment.living().values()
                _spoil(memory)
                self._dropped = [one for one in self._dropped if not one.expired()]
                self._dropped += [StorageWeakRef(one.untyped_storage()) for one in memory]
            group = _meeting(segment)
            if group is not None and group.size > 1:
                group.skip(f"Ctrl-C has ended its block of {self.name}, of which nothing runs")
        finally:
            self._paused.depth -= 1

    def check(self, tensor: torch.Tensor) -> None:
        """Raises `maco.Error` for a result that was dropped."""
        if self._dropped and any(not one.expired() and one.cdata == _storage(tensor) for one in self._dropped):
            raise Error("Ctrl-C ended the block before this was computed")

    # ---- ops

    def _seen(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._paused.depth:
            return func(*args, **kwargs)
        with self._lock:
            kind = kind_of(func)
            tensors = _tensors(args, kwargs)
            if not tensors or kind.shape_only:
                return self._plainly(func, args, kwargs)
            if not kind.deferred or not self._fits(kind, tensors, args, kwargs):
                if self._concerned(kind, tensors, args, kwargs):
                    self.flush()
                return self._plainly(func, args, kwargs)
            for _ in range(2):
                try:
                    return self._write(func, kind, args, kwargs, tensors)
                except Unknown:
                    self.flush()
            # An op that changes a tensor and reads another part of it.
            self._segment = Segment()
            return self._plainly(func, args, kwargs)

    def _concerned(self, kind: Kind, tensors: Sequence[Any], args: Any, kwargs: Any) -> bool:
        """Whether what is written down has to run before an op does."""
        if not kind.local or not all(ordinary(one) for one in tensors):
            return True
        changed = {id(one) for one in changed_by(kind, args, kwargs)}
        return any(self._segment.touches(one, id(one) in changed) for one in tensors)

    def _fits(self, kind: Kind, tensors: Sequence[Any], args: Any, kwargs: Any) -> bool:
        device = tensors[0].device
        if not all(ordinary(one) and one.device == device for one in tensors):
            return False
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted) != device:
            return False
        if kind.attention and drops(kind.schema, args, kwargs):
            return False
        if self._segment.device is not None and (self._segment.device != device or self._segment.stream != _stream(device)):
            self.flush()
        return True

    def _write(self, func: Any, kind: Kind, args: Any, kwargs: Any, tensors: Sequence[torch.Tensor]) -> Any:
        segment = self._segment
        if segment.device is None:
            segment.device = tensors[0].device
            segment.stream = _stream(segment.device)
        own_args, own_kwargs = _referred(args, segment), _referred(kwargs, segment)
        changed = changed_by(kind, args, kwargs)
        for one in changed:
            segment.change(one)
        if kind.view:
            results = self._plainly(func, args, kwargs)
            listed = isinstance(results, (list, tuple))
            numbers: list[int | None] = [segment.view(one) for one in (results if listed else [results])]
            segment.calls.append(Call(func, own_args, own_kwargs, numbers, listed=listed))
            return results
        shapes = shapes_of(func, own_args, own_kwargs, segment.layouts)
        if shapes is None or (changed and (kind.returns != 1 or len(changed) != 1)):
            self.flush()
            return self._plainly(func, args, kwargs)
        if changed:
            segment.calls.append(Call(func, own_args, own_kwargs, [segment.number(changed[0])], changes=True))
            return changed[0]
        made, numbers = [], []
        for one in shapes[1:]:
            tensor, number = segment.make(one.layout, segment.device) if isinstance(one, Result) else (one, None)
            made.append(tensor)
            numbers.append(number)
        segment.calls.append(Call(func, own_args, own_kwargs, numbers, listed=shapes[0] is not None))
        if kind.collective:
            segment.collectives += [number for number in numbers if number is not None]
        return made[0] if shapes[0] is None else shapes[0](made)

    def _plainly(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._paused.depth += 1
        try:
            return func(*args, **kwargs)
        finally:
            self._paused.depth -= 1

    # ---- running

    @property
    def device(self) -> torch.device | None:
        """Where what is written down computes; None while nothing is."""
        return self._segment.device

    @property
    def pending(self) -> bool:
        """Whether something is written down that hasn't run."""
        return bool(self._segment.calls)

    @untraced
    def flush(self) -> None:
        """Runs the recorded calls."""
        if not self._segment.calls or self._paused.depth:
            return
        with self._lock:
            segment, self._segment = self._segment, Segment()
            if not segment.calls:
                return
            self._paused.depth += 1
            try:
                with ExitStack() as around:
                    self._alone(around)
                    if segment.stream is not None:
                        around.enter_context(torch.cuda.stream(segment.stream))
                    self._run(segment)
                self.launches += 1
            finally:
                self._paused.depth -= 1

    def _alone(self, around: ExitStack) -> None:
        """Turns modes and autocast off while the segment runs: under them, ops mean something else."""
        around.enter_context(torch._C.DisableTorchFunction())
        around.enter_context(_disable_current_modes())
        around.enter_context(torch._C._ForceDispatchKeyGuard(*self._keys))
        around.enter_context(torch.no_grad())
        around.enter_context(torch._C._DisableAutocast())

    def _run(self, segment: Segment) -> None:
        assert segment.device is not None
        memory = segment.living()
        if not memory and not segment.changed and not segment.collectives:
            return
        options = self.options(segment.device)
        together = bool(segment.collectives) and groups.default().size > 1
        told = {key: value for key, value in options.items() if not callable(value)}
        key = segment.key, frozen(told), together and self.name in _apart
        try:
            found = _find(key, _wanted(segment, memory), together)
            if found is None and together:
                # What Python has only forgotten to free may be there on one rank and not on another.
                memory = {}
                gc.collect()
                memory = segment.living()
                found = _find(key, _wanted(segment, memory), together)
            if found is None:
                wanted = _wanted(segment, memory)
                found = wanted, self._made(segment, wanted, options, together)
                _keep(key, *found)
            given, run = found
            try:
                results = run(segment.inputs, [memory.get(number) for number in given])
            except MismatchError as error:
                if not together or self.name in _apart or segment.changed:
                    raise
                # The ranks met and one of them was at another segment; no op of this segment has run.
                _differ(self.name, error)
                results = _op_by_op(segment, given)(segment.inputs, None)
        except BaseException:
            _spoil(memory.values())
            raise
        for number, result in zip(given, results, strict=True):
            out_or_none = memory.get(number)
            if out_or_none is not None and result is not out_or_none:
                out_or_none.copy_(result)

    def _made(self, segment: Segment, wanted: tuple[int, ...], options: dict[str, Any], together: bool) -> Run:
        if not together:
            return _compile(segment, wanted, self.name, options)
        if self.name not in _apart:
            try:
                return _compile(segment, wanted, self.name, {**options, "alike": True})
            except MismatchError as error:
                _differ(self.name, error)
        return _op_by_op(segment, wanted)


def _meeting(segment: Segment) -> groups.Group | None:
    """The group whose ranks meet first to run a segment: that of all ranks, if a collective is of it."""
    first = None
    for call in segment.calls:
        if not kind_of(call.func).collective:
            continue
        for i, one in enumerate(call.func._schema.arguments):
            if one.name in ("group", "group_name"):
                name = call.args[i] if i < len(call.args) else call.kwargs.get(one.name, one.default_value)
                group = groups.find(str(name or ""))
                if group is groups.default():
                    return group
                first = first or group
    return first


def _spoil(memory: Iterable[torch.Tensor]) -> None:
    """Sees to it that nobody takes what was in memory before for a result."""
    for out in memory:
        if out.is_floating_point():
            out.fill_(float("nan"))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


Run = Callable[..., Any]
"""Takes the inputs, and memory for each result (None: there is none), and gives the results."""

_compiled: OrderedDict[Any, dict[tuple[int, ...], Run]] = OrderedDict()  # by segment, then by what is wanted of it
_compiled_lock = threading.Lock()
_apart: set[str] = set()
"""Names of recorders of which ranks have once written down different things: from then on torch runs them, op by op."""


def _wanted(segment: Segment, memory: Mapping[int, Any]) -> tuple[int, ...]:
    return tuple(sorted({*memory, *segment.collectives}))


def _find(key: Any, wanted: tuple[int, ...], together: bool) -> tuple[tuple[int, ...], Run] | None:
    """A compiled graph and the results that it gives. One that ranks run together may give more than are wanted."""
    with _compiled_lock:
        versions = _compiled.get(key, {})
        if wanted in versions:
            return wanted, versions[wanted]
        return next(((given, run) for given, run in versions.items() if together and set(given) >= set(wanted)), None)


def _keep(key: Any, wanted: tuple[int, ...], run: Run) -> None:
    with _compiled_lock:
        _compiled.setdefault(key, {})[wanted] = run
        while len(_compiled) > MOST_COMPILED:
            _compiled.popitem(last=False)


def _stream(device: torch.device) -> Any:
    """torch's current stream of a GPU."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among arguments."""
    found = []
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += [inner for inner in one if isinstance(inner, torch.Tensor)]
    return found


def _referred(value: Any, segment: Segment) -> Any:
    """Arguments with tensors by their numbers."""
    if isinstance(value, torch.Tensor):
        return Ref(segment.number(value))
    if isinstance(value, (list, tuple)):
        return type(value)(_referred(one, segment) for one in value)
    if isinstance(value, dict):
        return {key: _referred(one, segment) for key, one in value.items()}
    return value


def _dispatch_keys() -> tuple[Any, Any]:
    """What torch's dispatcher includes and excludes in this thread, without modes."""
    include = torch._C._dispatch_tls_local_include_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        include = include.remove(key)
    return include, torch._C._dispatch_tls_local_exclude_set()


def _compile(segment: Segment, wanted: Sequence[int], name: str, options: dict[str, Any]) -> Callable[..., Any]:
    from .fx import Options, compile_fx

    with tracing():
        compiled = compile_fx(segment.module(wanted), list(segment.inputs), options=Options(name=name, **options), static=segment.static)
    return compiled.run_into


def _op_by_op(segment: Segment, wanted: Sequence[int]) -> Run:
    """Torch runs it, and each collective is a kernel of its own."""
    module = segment.module(wanted)
    return lambda inputs, _: module(*inputs)


def _differ(name: str, error: MismatchError) -> None:
    """Notes that ranks wrote down different things, of which all of them are told."""
    _apart.add(name)
    warnings.warn(f"{error}; from now on nothing overlaps here: torch runs op by op", stacklevel=3)


def _no_options(device: torch.device) -> dict[str, Any]:
    return {}


# ---- which recorder ------------------------------------------------------------------------------------------------------------------


_local = threading.local()


def _stack() -> list[Recorder]:
    found = getattr(_local, "stack", None)
    if found is None:
        found = _local.stack = []
    return found


def current() -> Recorder | None:
    """The recorder whose block is innermost in this thread."""
    stack = _stack()
    return stack[-1] if stack else None


def _settle() -> None:
    """Called before any kernel is launched: runs recorded ops, as the kernel may read their results."""
    for one in _stack():
        one.flush()


kernel.before_launches.append(_settle)
