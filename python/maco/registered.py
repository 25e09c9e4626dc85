"""Tensors that are registered with a kernel: the caller's memory, as operands of a task graph."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from .errors import Error
from .tensors import ALIGNMENT, Memory, shape_text

if TYPE_CHECKING:
    from .persistent import PersistentKernel

__all__ = ["have_torch", "library_of", "operand", "usable"]


def _operator(kind: str, swapped: bool) -> Any:
    """An operator of a registered tensor: an op while the kernel's task graph is being built, else what it is of any tensor."""
    plain = f"__{'r' if swapped else ''}{kind}__"
    op = {"add": "add", "sub": "sub", "mul": "mul", "matmul": "matmul"}[kind]

    def method(self: Any, other: Any) -> Any:
        kernel = self._maco_kernel
        if kernel is None or not kernel._graph._building:
            return getattr(super(type(self), self), plain)(other)
        graph = kernel._graph
        value = graph._resolved(self, op)
        if swapped and kind in ("sub", "matmul") and not isinstance(other, (int, float)):
            return getattr(graph, op)(other, value)
        return getattr(value, plain)(other if isinstance(other, (int, float)) else graph._resolved(other, op))

    method.__name__ = plain
    return method


_OPERATORS = {
    f"__{'r' if swapped else ''}{kind}__": _operator(kind, swapped) for kind in ("add", "sub", "mul", "matmul") for swapped in (False, True)
}


@functools.cache
def _torch_class() -> Any:
    import torch

    class Registered(torch.Tensor):  # type: ignore[misc]
        """A tensor that is registered with a kernel: the caller's memory, with operators that a task graph takes for ops."""

        _maco_kernel: PersistentKernel | None = None

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def __reduce_ex__(self, protocol: Any) -> Any:
            return torch.Tensor(self.as_subclass(torch.Tensor)).__reduce_ex__(protocol)

    for name, method in _OPERATORS.items():
        setattr(Registered, name, method)
    return Registered


@functools.cache
def _numpy_class() -> Any:
    import numpy

    class Registered(numpy.ndarray):
        """An array that is registered with a kernel: the caller's memory, with operators that a task graph takes for ops."""

        _maco_kernel: PersistentKernel | None = None
        __array_priority__ = 0.0

        def __array_wrap__(self, array: Any, *rest: Any) -> Any:
            return numpy.asarray(array)

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            plain = [one.view(numpy.ndarray) if isinstance(one, Registered) else one for one in inputs]
            if "out" in kwargs:
                kwargs["out"] = tuple(one.view(numpy.ndarray) if isinstance(one, Registered) else one for one in kwargs["out"])
            return getattr(ufunc, method)(*plain, **kwargs)

    for name, method in _OPERATORS.items():
        setattr(Registered, name, method)
    return Registered


def operand(kernel: PersistentKernel, tensor: Any, library: str) -> Any:
    """The same memory, as operand."""
    if library == "torch":
        given = tensor.detach().as_subclass(_torch_class())
    elif library == "numpy":
        given = tensor.view(_numpy_class())
    else:
        return tensor
    given._maco_kernel = kernel
    return given


def library_of(tensor: Any) -> str:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return "torch"
    return "numpy" if numpy is not None and isinstance(tensor, numpy.ndarray) else ""


def have_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def usable(tensor: Any, memory: Memory, name: str) -> Any:
    """What `Program` can take: the same memory with at least one axis; torch's, where it has to be copied."""
    if not memory.elements:
        raise Error(f"'{name}' has the shape {shape_text(memory.shape)}: a tensor of a task graph has elements")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.detach().reshape(1) if not memory.shape else tensor.detach()
    if memory.contiguous and memory.address % ALIGNMENT == 0:
        if memory.shape:
            return tensor
        reshape = getattr(tensor, "reshape", None)
        if reshape is not None:
            return reshape(1)
    if memory.device == "cpu" and have_torch():
        import torch as found

        with contextlib.suppress(TypeError, ValueError, RuntimeError, BufferError):
            return found.from_dlpack(tensor) if not hasattr(tensor, "__array__") else found.from_numpy(tensor)
    raise Error(f"'{name}' must be contiguous and aligned to {ALIGNMENT} bytes; copy it")
