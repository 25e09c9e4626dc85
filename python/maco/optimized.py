"""Functions, modules and blocks that run through torch.compile with MACO as its backend."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch

from .backend import compile, options_of
from .compiled import OptimizedFunction
from .distributed import patch_torch_distributed
from .errors import Error

__all__ = ["PersistentContext", "optimize", "optimize_comm", "optimize_context", "task_graph"]


def optimize(target: Any = None, **options: Any) -> Any:
    """A decorator: a function, or the forward of a Module class, is compiled for MACO; collectives become part of the kernels.

    A class stays the class that it was, with its name, its state_dict and its subclasses. `options` are those of
    `torch.compile(backend="maco", options=...)`: strict, dynamic, sm_roles, min_ops, overlap, timeout. A module that is no class is
    compiled as `maco.compile` does.
    """
    own = dict(options)
    dynamic = own.pop("dynamic", None)
    options_of(own, dynamic=dynamic)
    if target is None:
        return functools.partial(optimize, **options)
    if isinstance(target, type):
        if not issubclass(target, torch.nn.Module):
            raise TypeError(f"optimize decorates functions and classes of torch.nn.Module; {target.__name__} is neither")
        target.forward = _decorated(target.forward, dynamic, own, method=True)  # type: ignore[attr-defined]
        return target
    if not callable(target):
        raise TypeError(f"optimize decorates a function or a Module class, not a {type(target).__name__}")
    if isinstance(target, torch.nn.Module):
        return compile(target, dynamic=dynamic, **own)
    return _decorated(target, dynamic, own)


def _decorated(function: Callable[..., Any], dynamic: bool | None, options: dict[str, Any], method: bool = False) -> Callable[..., Any]:
    """A function that compiles another at its first call, and is part of what calls it, if that is compiled; as a `method` a plain one."""
    compiled = compile(function, dynamic=dynamic, **options)
    if not method and "." not in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]:
        return OptimizedFunction(function, compiled)  # in the body of a class torch wants a function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        return compiled(*args, **kwargs)

    run._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    run._maco_arguments = compiled._maco_arguments  # type: ignore[attr-defined]
    return run


def optimize_comm(function: Any = None, **options: Any) -> Any:
    """A decorator for functions that communicate: what they compute and communicate becomes one kernel, in which both overlap.

    `options` as of `optimize`.
    """
    return optimize(function, **options)


def task_graph(function: Any = None, **options: Any) -> Any:
    """A decorator for a module's forward, or a function: it becomes a task graph, one kernel as far as MACO has its ops.

    `options` as of `optimize`.
    """
    if function is not None and (isinstance(function, (type, torch.nn.Module)) or not callable(function)):
        raise TypeError(f"task_graph decorates a function, as a module's forward, not a {type(function).__name__}")
    return optimize(function, **options)


# ---- a block


class _Modules:
    """Compiles modules that are called, while blocks of `optimize_context` are open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.local = threading.local()
        self.made: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, Any]] = weakref.WeakKeyDictionary()
        self.original: Any = None

    def open(self) -> None:
        with self.lock:
            if self.blocks == 0:
                self.original = torch.nn.Module._compiled_call_impl
                torch.nn.Module._compiled_call_impl = property(self.find, self.keep)  # type: ignore[assignment]
            self.blocks += 1

    def close(self) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                torch.nn.Module._compiled_call_impl = self.original

    @staticmethod
    def keep(module: torch.nn.Module, value: Any) -> None:
        """`module.compile()` in the block: it stays."""
        module.__dict__["_compiled_call_impl"] = value

    def find(self, module: torch.nn.Module) -> Any:
        """The compiled function to call in a module's place; None: call the module itself."""
        own = module.__dict__.get("_compiled_call_impl")
        options = getattr(self.local, "options", None)
        if own is not None or not options or torch.compiler.is_compiling():
            return own
        key = tuple(sorted((name, repr(value)) for name, value in options[-1].items()))
        with self.lock:
            made = self.made.setdefault(module, {})
            found = made.get(key)
            if found is None:
                found = made[key] = self._compiled(module, options[-1])
        return functools.partial(self._outermost, found)

    def _compiled(self, module: torch.nn.Module, options: dict[str, Any]) -> Any:
        held = weakref.ref(module)

        def forward(*args: Any, **kwargs: Any) -> Any:
            one = held()
            assert one is not None
            return one._call_impl(*args, **kwargs)

        # torch counts recompilations by code, of which each module has its own.
        forward.__code__ = forward.__code__.replace()
        told = dict(options)
        return compile(forward, dynamic=told.pop("dynamic", None), **told)

    def _outermost(self, compiled: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Modules that the outermost one calls are part of its graph.
        options, self.local.options = self.local.options, []
        try:
            return compiled(*args, **kwargs)
        finally:
            self.local.options = options


_modules = _Modules()


@contextlib.contextmanager
def optimize_context(**options: Any) -> Iterator[None]:
    """A block in which modules that this thread calls are compiled for MACO, and torch.distributed's collectives run in its kernels.

    Nothing of it stays behind the block. `options` as of `optimize`.
    """
    own = dict(options)
    options_of(own)
    undo = patch_torch_distributed()
    _modules.open()
    before = getattr(_modules.local, "options", None) or []
    _modules.local.options = [*before, own]
    try:
        yield
    finally:
        _modules.local.options = before
        _modules.close()
        undo()


class PersistentContext:
    """A model, compiled for MACO, for the time of a block: `with maco.PersistentContext(model) as ctx: ctx.forward(batch)`.

    Batches may differ in size, and weights may change between calls. `options` as of `optimize`.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        if isinstance(model, type) or not callable(model):
            raise TypeError(f"PersistentContext takes a module or a function, not {model!r}")
        own = dict(options)
        self._dynamic = own.pop("dynamic", None)
        options_of(own, dynamic=self._dynamic)
        self.model = model
        """What it was given."""
        self._options = own
        self._compiled: Any = None
        self._open = 0
        self._was_open = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives. Raises `maco.Error` outside of the block."""
        if not self._open:
            when = "was left" if self._was_open else "isn't entered yet: 'with maco.PersistentContext(model) as ctx:' enters it"
            raise Error(f"the PersistentContext {when}")
        return self._compiled(*args, **kwargs)

    __call__ = forward

    def __enter__(self) -> PersistentContext:
        if self._compiled is None:
            self._compiled = compile(self.model, dynamic=self._dynamic, **self._options)
        self._open += 1
        self._was_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open -= 1
        if not self._open:
            self._compiled = None

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.PersistentContext: pickle its model, and make another")

    def __repr__(self) -> str:
        state = "open" if self._open else "left" if self._was_open else "not entered"
        return f"<maco.PersistentContext of {type(self.model).__name__}, {state}>"
