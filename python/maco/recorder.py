"""Torch ops that are written down instead of run, until somebody needs a value: then all of them run as one graph.

A `Recorder` sees the ops of a block by torch's dispatch mode, below autograd. Results are ordinary tensors, with memory that is filled
later: views of them, tensors that autograd saved, and gradients are right without further ado. What changes a tensor in place is
written down in its place. What isn't written down (random numbers, results whose shape depends on values, other devices, subclasses of
tensors) runs by itself, behind all that was written before.

Values are needed when such an op reads them, when Python asks for an element, when memory is looked at (`numpy()`, `data_ptr()`, a launch
of a kernel of MACO's), and when the block ends.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from . import kernel, torch_ops  # noqa: F401  the ops of MACO's have to be there
from .errors import Error

__all__ = ["Recorder", "current", "looks"]

aten = torch.ops.aten

MOST_COMPILED = 256
"""How many graphs are kept."""


# ---- what is written down --------------------------------------------------------------------------------------------------------------


class _Ref:
    """A tensor of a segment by its number, among arguments."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ref) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("ref", self.number))

    def __repr__(self) -> str:
        return f"%{self.number}"


class _Call:
    """An op: its arguments with tensors by number, and the numbers of its results. `picks`: whether they are in a list."""

    __slots__ = ("args", "func", "kwargs", "listed", "results")

    def __init__(self, func: Any, args: Any, kwargs: Any, results: list[int | None], listed: bool) -> None:
        self.func, self.args, self.kwargs, self.results, self.listed = func, args, kwargs, results, listed


class _Made:
    """Memory that is filled when the segment runs; the tensor that filled it is known by number."""

    __slots__ = ("dtype", "number", "shape", "strides", "weak")

    def __init__(self, tensor: torch.Tensor, number: int) -> None:
        self.number = number
        self.weak = StorageWeakRef(tensor.untyped_storage())
        self.shape, self.strides, self.dtype = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype

    def tensor(self, device: torch.device) -> torch.Tensor | None:
        """The memory as a tensor; None if nobody has it any more."""
        if self.weak.expired():
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=self.dtype, device=device).set_(storage, 0, self.shape, self.strides)


Place = tuple[Any, ...]


def _place(tensor: torch.Tensor) -> Place:
    """Which elements of which memory a tensor is."""
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.dtype,
        tensor.is_neg(),
    )


class _Unknown(Exception):
    """A tensor shares memory with one that is written down, in a way that isn't."""


class _Segment:
    """Ops in a row that run together."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.inputs: list[torch.Tensor] = []
        self.input_numbers: list[int] = []
        self.numbers: dict[Place, int] = {}
        self.metas: dict[int, torch.Tensor] = {}
        self.made: dict[int, _Made] = {}  # by storage
        self.outer: dict[int, int] = {}  # storages of inputs: how many inputs
        self.changed: set[int] = set()  # storages of inputs that are changed
        self.device: torch.device | None = None
        self.count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """A tensor's number; one that isn't known becomes an input. Raises `_Unknown`."""
        place = _place(tensor)
        known = self.numbers.get(place)
        if known is not None:
            return known
        storage = place[0]
        if storage in self.made or storage in self.changed:
            raise _Unknown
        made = self.new(place)
        self.inputs.append(tensor.data)
        self.input_numbers.append(made)
        self.outer[storage] = self.outer.get(storage, 0) + 1
        self.metas[made] = _meta(tensor)
        return made

    def new(self, place: Place) -> int:
        self.count += 1
        self.numbers[place] = self.count
        return self.count

    def change(self, tensor: torch.Tensor) -> None:
        """Notes that an op changes a tensor. Raises `_Unknown` if an input shares its memory with another."""
        storage = tensor.untyped_storage()._cdata
        if storage in self.made:
            return
        if self.outer.get(storage, 0) > 1:
            raise _Unknown
        self.changed.add(storage)

    def touches(self, tensor: torch.Tensor, changes: bool) -> bool:
        """Whether an op that reads or changes a tensor has to wait for the segment."""
        storage = tensor.untyped_storage()._cdata
        return storage in self.made or storage in self.changed or (changes and storage in self.outer)


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device="meta")


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

    __slots__ = ("changes", "deferred", "local", "returns", "shape_only", "view")

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
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
        attention = name.startswith(_ATTENTION) and "backward" not in name
        bad = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
        self.deferred = (
            space in ("aten", "prims", "maco", "_c10d_functional")
            and self.returns > 0
            and (attention or (all(str(one.type) in ("Tensor", "List[Tensor]") for one in schema.returns) and not tags & bad))
            and not any(one in name for one in _NEVER)
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
        self._segment = _Segment()
        self._lock = threading.RLock()
        self._depth = 0
        self._paused = 0
        self._modes: list[Any] = []
        self._thread: int | None = None
        self._outer: Recorder | None = None
        self._keys = _dispatch_keys()

    # ---- blocks

    def __enter__(self) -> Recorder:
        if self._depth and self._thread != threading.get_ident():
            raise Error(f"this {self.name} is in use by another thread")
        if self._depth == 0:
            self._thread = threading.get_ident()
            self._outer = current()
            if self._outer is not None:
                self._outer.flush()
                self._outer._paused += 1
            self._keys = _dispatch_keys()
            _stack().append(self)
            self._modes = [_Functions(self), _Dispatch(self)]
            for mode in self._modes:
                mode.__enter__()
        self._depth += 1
        return self

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
                self._outer._paused -= 1
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
        if self._paused:
            return func(*args, **kwargs)
        with self._lock:
            kind = _kind(func)
            flat, form = tree_flatten((args, kwargs))
            tensors = [one for one in flat if isinstance(one, torch.Tensor)]
            if not tensors or kind.shape_only:
                return self._plainly(func, args, kwargs)
            if not kind.deferred or not self._fits(func, tensors, args, kwargs):
                if self._concerned(kind, tensors, args):
                    self.flush()
                return self._plainly(func, args, kwargs)
            try:
                return self._write(func, kind, args, kwargs, flat, form, tensors)
            except _Unknown:
                self.flush()
            try:
                return self._write(func, kind, args, kwargs, flat, form, tensors)
            except _Unknown:
                self._segment = _Segment()
                return self._plainly(func, args, kwargs)

    def _concerned(self, kind: _Kind, tensors: Sequence[Any], args: Any) -> bool:
        """Whether what is written down has to run before an op does."""
        segment = self._segment
        if not kind.local or not all(_ordinary(one) for one in tensors):
            return True
        changed = {id(one) for one in _changed(kind, args)}
        return any(segment.touches(one, id(one) in changed) for one in tensors)

    def _fits(self, func: Any, tensors: Sequence[Any], args: Any, kwargs: Any) -> bool:
        if not all(_ordinary(one) for one in tensors):
            return False
        devices = {one.device for one in tensors}
        if len(devices) > 1:
            return False
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted) not in devices:
            return False
        if func._schema.name.startswith("aten::" + _ATTENTION):
            return not _dropout(func, args, kwargs)
        if self._segment.device is not None and self._segment.device not in devices:
            self.flush()
        return True

    def _write(self, func: Any, kind: _Kind, args: Any, kwargs: Any, flat: list[Any], form: Any, tensors: Sequence[torch.Tensor]) -> Any:
        segment = self._segment
        # Which arguments change is settled first, so that nothing is written down of what can't be.
        changed = _changed(kind, args)
        numbers = [segment.number(one) if isinstance(one, torch.Tensor) else None for one in flat]
        for one in changed:
            segment.change(one)
        if segment.device is None:
            segment.device = tensors[0].device
        written = [_Ref(number) if number is not None else one for number, one in zip(numbers, flat, strict=True)]
        own_args, own_kwargs = tree_unflatten(written, form)
        if kind.view:
            results = self._plainly(func, args, kwargs)
            found = list(results) if isinstance(results, (list, tuple)) else [results]
            listed = isinstance(results, (list, tuple))
            segment.calls.append(_Call(func, own_args, own_kwargs, [self._viewed(one) for one in found], listed))
            return results
        try:
            meta = self._shapes(func, numbers, flat, form)
        except (NotImplementedError, RuntimeError):
            # What the op says of its operands, or an op whose results aren't known before it runs.
            self.flush()
            return self._plainly(func, args, kwargs)
        if changed:
            if kind.returns != 1 or len(changed) != 1:
                self.flush()
                return self._plainly(func, args, kwargs)
            segment.calls.append(_Call(func, own_args, own_kwargs, [segment.number(changed[0])], False))
            return changed[0]
        listed = isinstance(meta, (list, tuple))
        shapes = list(meta) if isinstance(meta, (list, tuple)) else [meta]
        made: list[Any] = []
        results_of: list[int | None] = []
        for one in shapes:
            if not isinstance(one, torch.Tensor):
                made.append(one)
                results_of.append(None)
                continue
            device = segment.device
            tensor = torch.empty_strided(tuple(one.shape), tuple(one.stride()), dtype=one.dtype, device=device)
            number = segment.new(_place(tensor))
            segment.metas[number] = one
            segment.made[tensor.untyped_storage()._cdata] = _Made(tensor, number)
            made.append(tensor)
            results_of.append(number)
        segment.calls.append(_Call(func, own_args, own_kwargs, results_of, listed))
        if not listed:
            return made[0]
        return tuple(made) if isinstance(meta, tuple) else made

    def _viewed(self, tensor: torch.Tensor) -> int:
        segment = self._segment
        place = _place(tensor)
        known = segment.numbers.get(place)
        number = segment.new(place) if known is None else known
        segment.metas.setdefault(number, _meta(tensor))
        return number

    def _shapes(self, func: Any, numbers: Sequence[int | None], flat: Sequence[Any], form: Any) -> Any:
        """What the op would give, as tensors without memory."""
        metas = self._segment.metas
        told = [metas[number] if number is not None else one for number, one in zip(numbers, flat, strict=True)]
        args, kwargs = tree_unflatten(told, form)
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": torch.device("meta")}
        return func(*args, **kwargs)

    def _plainly(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._paused += 1
        try:
            return func(*args, **kwargs)
        finally:
            self._paused -= 1

    # ---- running

    @property
    def device(self) -> torch.device | None:
        """Where what is written down computes; None while nothing is."""
        return self._segment.device

    @property
    def pending(self) -> bool:
        """Whether something is written down that hasn't run."""
        return bool(self._segment.calls)

    def flush(self) -> None:
        """Runs what is written down."""
        if not self._segment.calls or self._paused:
            return
        with self._lock:
            segment, self._segment = self._segment, _Segment()
            if not segment.calls:
                return
            self._paused += 1
            try:
                with ExitStack() as around:
                    # As if nobody looked on: within a mode's handler, or under autocast, ops mean something else.
                    around.enter_context(torch._C.DisableTorchFunction())
                    around.enter_context(_disable_current_modes())
                    around.enter_context(torch._C._ForceDispatchKeyGuard(*self._keys))
                    around.enter_context(torch.no_grad())
                    around.enter_context(torch._C._DisableAutocast())
                    self._run(segment)
                self.launches += 1
            finally:
                self._paused -= 1

    def _run(self, segment: _Segment) -> None:
        assert segment.device is not None
        outs: list[torch.Tensor] = []
        wanted: list[int] = []
        for one in segment.made.values():
            tensor = one.tensor(segment.device)
            if tensor is not None:
                outs.append(tensor)
                wanted.append(one.number)
        if not wanted and not segment.changed:
            return
        options = self.options(segment.device)
        key = _key(segment, wanted, options)
        run = _compiled.get(key)
        try:
            if run is None:
                run = _compile(segment, wanted, self.name, options)
                with _compiled_lock:
                    _compiled[key] = run
                    while len(_compiled) > MOST_COMPILED:
                        _compiled.popitem(last=False)
            results = run(segment.inputs)
        except BaseException:
            # Nobody may take what was in the memory before for a result.
            for out in outs:
                if out.is_floating_point():
                    out.fill_(float("nan"))
            raise
        for out, result in zip(outs, results, strict=True):
            out.copy_(result)


def _changed(kind: _Kind, args: Any) -> list[torch.Tensor]:
    """The tensors that an op changes."""
    return [args[at] for at in kind.changes if at < len(args) and isinstance(args[at], torch.Tensor)]


def _dropout(func: Any, args: Any, kwargs: Any) -> bool:
    for i, one in enumerate(func._schema.arguments):
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


# ---- graphs ----------------------------------------------------------------------------------------------------------------------------


def _key(segment: _Segment, wanted: Sequence[int], options: dict[str, Any]) -> Any:
    """Two segments of one key run by the same graph."""
    inputs = tuple((tuple(one.shape), tuple(one.stride()), one.dtype, one.device) for one in segment.inputs)
    calls = tuple((call.func, _frozen(call.args), _frozen(call.kwargs), tuple(call.results), call.listed) for call in segment.calls)
    told = {key: value for key, value in options.items() if not callable(value)}
    return inputs, tuple(segment.input_numbers), calls, tuple(wanted), _frozen(told)


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(_frozen(one) for one in value))
    if isinstance(value, dict):
        return ("dict", *((key, _frozen(one)) for key, one in value.items()))
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, (bool, int, float)):
        return (type(value).__name__, value, str(value))
    try:
        hash(value)
    except TypeError:
        return ("id", id(value))
    return value


def _module(segment: _Segment, wanted: Sequence[int]) -> torch.fx.GraphModule:
    """The segment as a graph of ATen ops, which takes the inputs and gives what is wanted."""
    graph = torch.fx.Graph()
    nodes: dict[int, torch.fx.Node] = {number: graph.placeholder(f"i{number}") for number in segment.input_numbers}

    def node_of(value: Any) -> Any:
        return nodes[value.number] if isinstance(value, _Ref) else value

    for call in segment.calls:
        args = tree_map(node_of, call.args, is_leaf=lambda one: isinstance(one, _Ref))
        kwargs = tree_map(node_of, call.kwargs, is_leaf=lambda one: isinstance(one, _Ref))
        node = graph.call_function(call.func, tuple(args), dict(kwargs))
        if not call.listed:
            assert call.results[0] is not None
            if not _kind(call.func).changes:
                nodes[call.results[0]] = node
            continue
        for i, number in enumerate(call.results):
            if number is not None:
                nodes[number] = graph.call_function(operator.getitem, (node, i))
    graph.output([nodes[number] for number in wanted])
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _compile(segment: _Segment, wanted: Sequence[int], name: str, options: dict[str, Any]) -> Callable[..., Any]:
    gm = _module(segment, wanted)
    from .fx import Options, compile_fx

    compiled = compile_fx(gm, list(segment.inputs), options=Options(name=name, **options))
    return lambda inputs: compiled(*inputs)


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
