"""Torch ops that are written down instead of run, until somebody needs a value: then all of them run as one graph.

A `Recorder` sees the ops of a block by torch's dispatch mode, below autograd. Results are ordinary tensors, with memory that is filled
later: views of them, tensors that autograd saved, and gradients are right without further ado. What changes a tensor in place is
written down in its place. What isn't written down (random numbers, results whose shape depends on values, other devices, subclasses of
tensors) runs by itself, behind all that was written before.

Values are needed when such an op reads them, when Python asks for an element, when memory is looked at (`numpy()`, `data_ptr()`, a launch
of a kernel of MACO's), and when the block ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import kernel, torch_ops  # noqa: F401  the ops of MACO's have to be there
from .errors import Error
from .segment import Call, Layout, Ref, Segment, Unknown, frozen, replaced
from .untraced import untraced

__all__ = ["Recorder", "current", "looks"]

if hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
    # Tracing does it at its first use; where that is a thread that ends, torch crashes later.
    torch._C._ensureCUDADeviceGuardSet()

MOST_COMPILED = 256
"""How many graphs are kept."""

MOST_SHAPES = 4096
"""Of how many calls of ops the shapes of results are kept."""


# ---- which ops -------------------------------------------------------------------------------------------------------------------------


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


class _Kind:
    """What is known of an op."""

    __slots__ = ("attention", "changes", "deferred", "local", "returns", "schema", "shape_only", "view")

    def __init__(self, func: Any) -> None:
        schema = self.schema = getattr(func, "_schema", None)
        self.attention = False
        self.local = False  # whether all that it does is to its operands and results
        self.shape_only = False
        self.deferred = False
        self.view = False
        self.changes: list[int] = []  # positions of operands that it changes
        self.returns = 0
        if schema is None:
            return
        space, _, name = schema.name.partition("::")
        self.local = space in ("aten", "prims")
        self.shape_only = self.local and name in _SHAPE_ONLY
        self.view = func.is_view
        written = [one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write]
        self.changes = [i for i, one in enumerate(schema.arguments) if one in written]
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


_kinds: dict[Any, _Kind] = {}


def _kind(func: Any) -> _Kind:
    found = _kinds.get(func)
    if found is None:
        found = _kinds[func] = _Kind(func)
    return found


ORDINARY = (torch.Tensor, torch.nn.Parameter)


def _ordinary(tensor: Any) -> bool:
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


_compiled: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
_compiled_lock = threading.Lock()
_tracing = threading.RLock()


class _Depth(threading.local):
    """How deep this thread is in what isn't to be recorded."""

    depth = 0


class Recorder:
    """Writes down what a block does, and runs it when a value is needed.

    `options` gives those of `fx.Options` but for `name`, for a device, and is asked at each run. Entering it begins to record in this
    thread; blocks of one recorder can be nested. Leaving the outermost runs what is left, also if the block raises.
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
        """Behind an exception of the block's, which is the one to tell."""
        try:
            self.flush()
        except Error:
            return

    # ---- ops

    def _seen(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._paused.depth:
            return func(*args, **kwargs)
        with self._lock:
            kind = _kind(func)
            tensors = _tensors(args, kwargs)
            if not tensors or kind.shape_only:
                return self._plainly(func, args, kwargs)
            if not kind.deferred or not self._fits(kind, tensors, args, kwargs):
                if self._concerned(kind, tensors, args):
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

    def _concerned(self, kind: _Kind, tensors: Sequence[Any], args: Any) -> bool:
        """Whether what is written down has to run before an op does."""
        if not kind.local or not all(_ordinary(one) for one in tensors):
            return True
        changed = {id(one) for one in _changed(kind, args)}
        return any(self._segment.touches(one, id(one) in changed) for one in tensors)

    def _fits(self, kind: _Kind, tensors: Sequence[Any], args: Any, kwargs: Any) -> bool:
        device = tensors[0].device
        if not all(_ordinary(one) and one.device == device for one in tensors):
            return False
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted) != device:
            return False
        if kind.attention and _dropout(kind.schema, args, kwargs):
            return False
        if self._segment.device is not None and (self._segment.device != device or self._segment.stream != _stream(device)):
            self.flush()
        return True

    def _write(self, func: Any, kind: _Kind, args: Any, kwargs: Any, tensors: Sequence[torch.Tensor]) -> Any:
        segment = self._segment
        if segment.device is None:
            segment.device = tensors[0].device
            segment.stream = _stream(segment.device)
        own_args, own_kwargs = _referred(args, segment), _referred(kwargs, segment)
        changed = _changed(kind, args)
        for one in changed:
            segment.change(one)
        if kind.view:
            results = self._plainly(func, args, kwargs)
            listed = isinstance(results, (list, tuple))
            numbers: list[int | None] = [segment.view(one) for one in (results if listed else [results])]
            segment.calls.append(Call(func, own_args, own_kwargs, numbers, listed=listed))
            return results
        shapes = _shapes(func, own_args, own_kwargs, segment.layouts)
        if shapes is None or (changed and (kind.returns != 1 or len(changed) != 1)):
            self.flush()
            return self._plainly(func, args, kwargs)
        if changed:
            segment.calls.append(Call(func, own_args, own_kwargs, [segment.number(changed[0])], changes=True))
            return changed[0]
        made, numbers = [], []
        for one in shapes[1:]:
            tensor, number = segment.make(one.layout, segment.device) if isinstance(one, _Result) else (one, None)
            made.append(tensor)
            numbers.append(number)
        segment.calls.append(Call(func, own_args, own_kwargs, numbers, listed=shapes[0] is not None))
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
        """Runs what is written down."""
        if not self._segment.calls or self._paused.depth:
            return
        with self._lock:
            segment, self._segment = self._segment, Segment()
            if not segment.calls:
                return
            self._paused.depth += 1
            try:
                with ExitStack() as around:
                    # As if nobody looked on: within a mode's handler, or under autocast, ops mean something else.
                    around.enter_context(torch._C.DisableTorchFunction())
                    around.enter_context(_disable_current_modes())
                    around.enter_context(torch._C._ForceDispatchKeyGuard(*self._keys))
                    around.enter_context(torch.no_grad())
                    around.enter_context(torch._C._DisableAutocast())
                    if segment.stream is not None:
                        around.enter_context(torch.cuda.stream(segment.stream))
                    self._run(segment)
                self.launches += 1
            finally:
                self._paused.depth -= 1

    def _run(self, segment: Segment) -> None:
        assert segment.device is not None
        wanted, outs = segment.living()
        if not wanted and not segment.changed:
            return
        options = self.options(segment.device)
        told = {key: value for key, value in options.items() if not callable(value)}
        key = segment.key(wanted), frozen(told)
        try:
            with _compiled_lock:
                run = _compiled.get(key)
            if run is None:
                run = _compile(segment, wanted, self.name, options)
                with _compiled_lock:
                    _compiled[key] = run
                    while len(_compiled) > MOST_COMPILED:
                        _compiled.popitem(last=False)
            results = run(segment.inputs, outs)
        except BaseException:
            # Nobody may take what was in the memory before for a result.
            for out in outs:
                if out.is_floating_point():
                    out.fill_(float("nan"))
            raise
        for out, result in zip(outs, results, strict=True):
            if result is not out:
                out.copy_(result)


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


class _Result:
    """A tensor that an op gives: its shape, strides and dtype."""

    __slots__ = ("layout",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layout: Layout = tuple(tensor.shape), tensor.stride(), tensor.dtype


_known_shapes: OrderedDict[Any, Any] = OrderedDict()


def _shapes(func: Any, args: Any, kwargs: Any, layouts: Sequence[Layout]) -> tuple[Any, ...] | None:
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
    made = [_Result(one) if isinstance(one, torch.Tensor) else one for one in (results if listed else [results])]
    _known_shapes[key] = found = (tuple if isinstance(results, tuple) else list) if listed else None, *made
    while len(_known_shapes) > MOST_SHAPES:
        _known_shapes.popitem(last=False)
    return found


def _changed(kind: _Kind, args: Any) -> list[torch.Tensor]:
    """The tensors that an op changes."""
    return [args[at] for at in kind.changes if at < len(args) and isinstance(args[at], torch.Tensor)]


def _dropout(schema: Any, args: Any, kwargs: Any) -> bool:
    for i, one in enumerate(schema.arguments):
        if one.name == "dropout_p":
            value = kwargs.get("dropout_p", args[i] if i < len(args) else one.default_value)
            return bool(value)
    return True


def _dispatch_keys() -> tuple[Any, Any]:
    """What torch's dispatcher includes and excludes in this thread, without modes."""
    include = torch._C._dispatch_tls_local_include_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        include = include.remove(key)
    return include, torch._C._dispatch_tls_local_exclude_set()


def _compile(segment: Segment, wanted: Sequence[int], name: str, options: dict[str, Any]) -> Callable[..., Any]:
    from .fx import Options, compile_fx

    with _tracing:  # torch's tracing is no work for several threads
        compiled = compile_fx(segment.module(wanted), list(segment.inputs), options=Options(name=name, **options), static=segment.static)
    return compiled.run_into


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
    """Before a launch of any kernel: what is written down may be what it reads."""
    for one in _stack():
        one.flush()


kernel.before_launches.append(_settle)
