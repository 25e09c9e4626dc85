"""What `maco.compile` and the decorators give in the place of a function or module."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.eval_frame import OptimizedModule

__all__ = ["CompiledFunction", "CompiledModule", "OptimizedFunction", "patiently"]

_TRACING = "symbolically trace a dynamo-optimized function"
"""Words of torch's error where a compiled function is called while another thread traces: torch has one flag for all."""


def _keep_device_guard() -> None:
    """Keeps the main thread's stand-in for CUDA devices alive.

    Without a GPU, torch takes an object of the tracing thread at each tracing. It crashes at the next tracing once that thread has ended.
    """
    if not hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        return
    torch._C._ensureCUDADeviceGuardSet()
    if threading.current_thread() is threading.main_thread() and not torch.cuda.is_available():
        torch._C._ensureCUDADeviceGuardSet = lambda: None


_keep_device_guard()


def patiently(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call of a compiled function, which waits while another thread compiles, where torch would raise."""
    try:
        return call(*args, **kwargs)
    except RuntimeError as error:
        if _TRACING not in str(error) or torch.compiler.is_compiling():
            raise
    # Nothing of the call has run. With the lock nobody else compiles: what fails now is nested in this thread.
    with compile_lock:
        return call(*args, **kwargs)


class _FunctionLike:
    """An object in the place of a function: bound as a method, copied as itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class CompiledFunction(_FunctionLike):
    """A function that torch.compile gave with MACO as its backend. `_maco_arguments` are those of `maco.compile`."""

    def __init__(self, function: Callable[..., Any], compiled: Callable[..., Any], arguments: dict[str, Any]) -> None:
        super().__init__(function)
        self._compiled = compiled
        self._maco_arguments = arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return patiently(self._compiled, args, kwargs)

    def __reduce__(self) -> Any:
        raise TypeError(f"can't pickle the compiled function '{getattr(self, '__name__', '')}': pickle the function that was compiled")

    def __repr__(self) -> str:
        return f"<maco.compile of {getattr(self, '__wrapped__', None)!r}>"


class OptimizedFunction(_FunctionLike):
    """A function that is compiled at its first call, and is part of what calls it, if that is compiled. Pickled by its name."""

    def __init__(self, function: Callable[..., Any], compiled: Any) -> None:
        super().__init__(function)
        self._function = function
        self._compiled = compiled
        self._maco_arguments = compiled._maco_arguments
        self._torchdynamo_orig_callable = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._function(*args, **kwargs)
        return self._compiled(*args, **kwargs)

    def __reduce__(self) -> Any:
        module, path = getattr(self, "__module__", None) or "__main__", getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(module)
        for one in path.split("."):
            found = getattr(found, one, None)
        if found is self:
            return path
        raise TypeError(
            f"can't pickle the optimized function '{path}', which {module} doesn't have by that name: define it in a module by "
            f"@maco.optimize, or pickle the function that was decorated"
        )

    def __repr__(self) -> str:
        return f"<maco.optimize of {self._function!r}>"


class CompiledModule(OptimizedModule):  # type: ignore[misc]
    """A module that torch.compile gave with MACO as its backend, as an OptimizedModule that says what can be pickled."""

    _maco_arguments: dict[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return patiently(super().__call__, args, kwargs)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"can't pickle a compiled {type(self._orig_mod).__name__}: pickle the module that was compiled (._orig_mod), "
            f"or its state_dict()"
        )

    def __deepcopy__(self, memo: Any) -> Any:
        import copy

        from .backend import compile

        return compile(copy.deepcopy(self._orig_mod, memo), **self._maco_arguments)


_tracing = threading.RLock()


class tracing:
    """A block in which this thread traces, and no other: torch's tracing is no work for several threads."""

    def __enter__(self) -> None:
        _tracing.acquire()
        compile_lock.acquire()

    def __exit__(self, *_: Any) -> None:
        compile_lock.release()
        _tracing.release()
