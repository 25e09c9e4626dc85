"""Tensors that are registered with a kernel: the caller's memory, as operands of a task graph."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from .errors import Error
from .tensors import ALIGNMENT, Memory

if TYPE_CHECKING:
    from .persistent import PersistentKernel
    from .taskgraph import TaskGraph

__all__ = ["have_torch", "library_of", "operand", "usable"]


def _op(graph: TaskGraph, kind: str, left: Any, right: Any) -> Any:
    """left + right and the like as an op of the task graph; one of them may be a number."""
    if isinstance(left, (int, float)):
        if kind == "sub":
            return graph.add(graph.mul(right, value=-1), left)
        left, right = right, left
    return getattr(graph, kind)(left, right)


def _outside(name: str) -> Error:
    return Error(f"'{name}' would run at once, and not be part of the task graph, which has ops of its own: graph.matmul() and the like")


# What operators are called in torch; the second of a pair has its operands swapped.
_TORCH = {
    **dict.fromkeys(("add", "__add__", "__radd__"), ("add", False)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), ("mul", False)),
    **dict.fromkeys(("sub", "subtract", "__sub__"), ("sub", False)),
    **dict.fromkeys(("rsub", "__rsub__"), ("sub", True)),
    **dict.fromkeys(("matmul", "mm", "__matmul__"), ("matmul", False)),
    "__rmatmul__": ("matmul", True),
}
_ASKS = {
    "size",
    "dim",
    "numel",
    "stride",
    "is_contiguous",
    "element_size",
    "__len__",
    "__hash__",
    "data_ptr",
    "__repr__",
    "is_floating_point",
}


@functools.cache
def _torch_class() -> Any:
    import torch

    class Registered(torch.Tensor):  # type: ignore[misc]
        """A tensor that is registered with a kernel: the caller's memory, with operators that a task graph takes for ops."""

        _maco_kernel: PersistentKernel

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            graph = next((one._maco_kernel._graph for one in args if isinstance(one, Registered) and hasattr(one, "_maco_kernel")), None)
            if graph is not None and graph._building and name not in _ASKS and name != "__get__":
                kind, swapped = _TORCH.get(name, ("", False))
                if not kind or len(args) != 2 or kwargs:
                    raise _outside(name)
                return _op(graph, kind, *(reversed(args) if swapped else args))
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)

    def operator(name: str, kind: str, swapped: bool) -> Any:
        # torch would refuse values of a graph before it asks __torch_function__.
        def method(self: Any, other: Any) -> Any:
            graph = self._maco_kernel._graph
            if not graph._building:
                return getattr(torch.Tensor, name)(self, other)
            return _op(graph, kind, *((other, self) if swapped else (self, other)))

        return method

    for kind in ("add", "sub", "mul", "matmul"):
        setattr(Registered, f"__{kind}__", operator(f"__{kind}__", kind, False))
        setattr(Registered, f"__r{kind}__", operator(f"__r{kind}__", kind, True))
    return Registered


_NUMPY = {"add": "add", "subtract": "sub", "multiply": "mul", "matmul": "matmul"}


@functools.cache
def _numpy_class() -> Any:
    import numpy

    class Registered(numpy.ndarray):
        """An array that is registered with a kernel: the caller's memory, with operators that a task graph takes for ops."""

        _maco_kernel: PersistentKernel | None = None

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            graph = next((one._maco_kernel._graph for one in inputs if getattr(one, "_maco_kernel", None) is not None), None)
            if graph is not None and graph._building:
                kind = _NUMPY.get(ufunc.__name__)
                if kind is None or method != "__call__" or kwargs:
                    raise _outside(ufunc.__name__)
                return _op(graph, kind, *inputs)

            def plain(one: Any) -> Any:
                return one.view(numpy.ndarray) if isinstance(one, Registered) else one

            if "out" in kwargs:
                kwargs["out"] = tuple(plain(one) for one in kwargs["out"])
            return getattr(ufunc, method)(*(plain(one) for one in inputs), **kwargs)

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
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def usable(tensor: Any, memory: Memory, name: str) -> Any:
    """What `Program` can take: the same memory with at least one axis; torch's, where it has to be copied."""
    if not memory.elements:
        return tensor  # nothing is ever read or written there
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
