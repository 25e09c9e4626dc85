"""Values that a context computes later: tensors that may be used before they are computed."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from .recordable import ORDINARY, looks
from .recorder import Recorder

__all__ = ["Lazy", "LazyFailure", "LazyTensor", "LazyValue", "lazily", "plain"]


class Lazy:
    """A value that a context computes: `wait()` and `result()` give it. Using it as the value waits."""

    _recorder: Recorder

    def wait(self) -> Any:
        """The value."""
        raise NotImplementedError

    def result(self) -> Any:
        """The value."""
        return self.wait()

    def is_completed(self) -> bool:
        """Whether the value has been computed."""
        return not self._recorder.pending


_METADATA = {
    "shape", "dtype", "device", "requires_grad", "ndim", "is_leaf", "grad_fn", "layout", "is_cuda", "is_cpu", "itemsize", "nbytes", "grad",
    "_version", "is_sparse", "names", "is_meta", "is_quantized", "output_nr", "retains_grad", "_base", "_backward_hooks",
}  # fmt: skip
_ASKS = {
    "size", "dim", "numel", "stride", "is_contiguous", "element_size", "__len__", "storage_offset", "is_floating_point", "is_complex",
    "nelement", "get_device", "ndimension", "type", "requires_grad_", "__hash__",
}  # fmt: skip


class LazyTensor(Lazy, torch.Tensor):  # type: ignore[misc]
    """A tensor that a context computes. Any use of it outside of what its context records waits for it."""

    _plain: torch.Tensor

    def wait(self) -> torch.Tensor:
        """The tensor. Raises `maco.Error` if Ctrl-C ended the block before it was computed."""
        self._recorder.flush()
        self._recorder.check(self._plain)
        return self._plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.wait().__reduce_ex__(protocol)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"maco.Lazy({self.wait()!r})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found: list[LazyTensor] = []

        def opened(one: Any) -> Any:
            if isinstance(one, LazyTensor):
                found.append(one)
                return one._plain
            return one

        args, kwargs = tree_map(opened, (args, kwargs or {}))
        if not _asks(func):
            for one in found:
                if not one._recorder.recording or looks(func):
                    one._recorder.flush()
        return func(*args, **kwargs)


def _asks(func: Any) -> bool:
    """Whether a function asks for no elements."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "") in _METADATA
    return name in _ASKS


class LazyValue(Lazy):
    """The result of a function that gave something other than one tensor: tuples, lists and mappings of tensors, or anything else."""

    def __init__(self, recorder: Recorder, value: Any) -> None:
        self._recorder = recorder
        self._value = value

    def wait(self) -> Any:
        """The value, with tensors for what is lazy in it."""
        self._recorder.flush()
        return plain(self._value)

    def __iter__(self) -> Any:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_value"], name)

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Lazy: pickle its result()")

    def __repr__(self) -> str:
        return f"maco.Lazy({self.wait()!r})"


class LazyFailure(Lazy):
    """What a function of the user's raised instead: `wait()` and `result()` raise it."""

    def __init__(self, recorder: Recorder, error: BaseException) -> None:
        self._recorder = recorder
        self._error = error
        self.told = False

    def wait(self) -> Any:
        """Raises what the function raised."""
        self.told = True
        raise self._error

    def is_completed(self) -> bool:
        """True: the failure is known."""
        return True

    def __repr__(self) -> str:
        return f"<maco.Lazy that failed: {self._error!r}>"


def plain(value: Any) -> Any:
    """A value with tensors for lazy ones in it; nothing is waited for."""
    if isinstance(value, LazyTensor):
        return value._plain
    if isinstance(value, LazyValue):
        return plain(value._value)
    if isinstance(value, LazyFailure):
        return value.wait()
    return tree_map(lambda one: plain(one) if isinstance(one, Lazy) else one, value, is_leaf=lambda one: isinstance(one, Lazy))


def lazily(recorder: Recorder, value: Any) -> Lazy:
    """What a function gave, as a lazy value."""
    if isinstance(value, Lazy):
        return value
    if isinstance(value, torch.Tensor):
        return _lazy_tensor(recorder, value)
    inner = tree_map(lambda one: _lazy_tensor(recorder, one) if type(one) in ORDINARY else one, value)
    return LazyValue(recorder, inner)


def _lazy_tensor(recorder: Recorder, tensor: torch.Tensor) -> LazyTensor:
    with torch._C.DisableTorchFunction():
        recorder._paused.depth += 1
        try:
            made: LazyTensor = tensor.as_subclass(LazyTensor)
        finally:
            recorder._paused.depth -= 1
    made._recorder = recorder
    made._plain = tensor
    return made
