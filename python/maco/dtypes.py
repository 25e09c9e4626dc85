"""Element types: `f32 f16 bf16 f8e4m3 f8e5m2 i32 u8`, and what PyTorch and NumPy call them.

Neither of the two is imported here unless the caller asks for a type of theirs.
"""

from __future__ import annotations

import difflib
import sys
from enum import Enum
from typing import Any, Union

from .errors import Error

__all__ = ["DType", "DTypeLike", "as_dtype", "bf16", "f8e4m3", "f8e5m2", "f16", "f32", "i32", "u8"]


class DType(Enum):
    """An element type. `str()` gives its name in graphs; `itemsize` is in bytes."""

    f32 = 0
    f16 = 1
    bf16 = 2
    f8e4m3 = 3
    f8e5m2 = 4
    i32 = 5
    u8 = 6

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"maco.{self.name}"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _SIZES[self.name]

    @property
    def is_float(self) -> bool:
        """Whether it is a type of floating point."""
        return self.name not in ("i32", "u8")

    def numpy(self) -> Any:
        """The NumPy dtype.

        NumPy has no bf16 and f8: they are those of ml_dtypes where that is installed, and else uint16 and uint8, which hold the bits.
        Raises ImportError without NumPy.
        """
        import numpy

        if self.name in _NUMPY:
            return numpy.dtype(_NUMPY[self.name])
        try:
            import ml_dtypes
        except ImportError:
            return numpy.dtype("uint16" if self.itemsize == 2 else "uint8")
        return numpy.dtype(getattr(ml_dtypes, _TORCH[self.name]))

    def torch(self) -> Any:
        """The torch dtype. Raises ImportError without PyTorch, and `maco.Error` where this PyTorch has no such type."""
        import torch

        found = getattr(torch, _TORCH[self.name], None)
        if found is None:
            raise Error(f"this PyTorch ({torch.__version__}) has no {_TORCH[self.name]}")
        return found


f32, f16, bf16, f8e4m3, f8e5m2, i32, u8 = DType
DTypeLike = Union[DType, str, Any]
"""A `DType`, its name, or a dtype of torch, NumPy or ml_dtypes."""

_SIZES = {"f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i32": 4, "u8": 1}
_NUMPY = {"f32": "float32", "f16": "float16", "i32": "int32", "u8": "uint8"}
_TORCH = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i32": "int32",
    "u8": "uint8",
}
# What others call them. f8e4m3 is the one without infinities (e4m3fn).
_NAMES = {
    **{name: name for name in _SIZES},
    **{theirs: name for name, theirs in _TORCH.items()},
    "float": "f32",
    "fp32": "f32",
    "half": "f16",
    "fp16": "f16",
    "bf": "bf16",
    "f8_e4m3": "f8e4m3",
    "fp8_e4m3": "f8e4m3",
    "e4m3": "f8e4m3",
    "float8_e4m3": "f8e4m3",
    "f8_e5m2": "f8e5m2",
    "fp8_e5m2": "f8e5m2",
    "e5m2": "f8e5m2",
    "int": "i32",
    "s32": "i32",
    "byte": "u8",
    "uint8_t": "u8",
    "int32_t": "i32",
}


def as_dtype(dtype: DTypeLike) -> DType:
    """The `DType` that is meant.

    Takes a `DType`, a name ("bf16", "bfloat16", "torch.bfloat16"), a dtype of torch, NumPy or ml_dtypes, or a NumPy scalar type.
    Raises `maco.Error` for a type that MACO has not, with the nearest one, and TypeError for what is no type at all.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        name = dtype
    else:
        named = _foreign_name(dtype)
        if named is None:
            raise TypeError(f"a dtype is expected, not {type(dtype).__name__}: {dtype!r}")
        name = named
    short = name.rsplit(".", 1)[-1]
    known = _NAMES.get(short) or _NAMES.get(short.lower())
    if known is None:
        raise Error(f"MACO has no dtype '{name}'; {suggestion(short)}")
    return DType[known]


def _foreign_name(dtype: Any) -> str | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype)
    if type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype":
        return str(dtype)
    if dtype is float:
        return "float32"
    if dtype is int:
        return "int32"
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if not isinstance(dtype, numpy.dtype):
        if not (isinstance(dtype, type) and (issubclass(dtype, numpy.generic) or dtype.__module__.startswith("ml_dtypes"))):
            return None
        dtype = numpy.dtype(dtype)
    if dtype.byteorder == ">":
        raise Error(f"MACO has no dtype '{dtype.str}': its bytes are in the other order; use .astype('{dtype.name}')")
    return str(dtype.name)


_WIDER = {
    "float64": "f32",
    "double": "f32",
    "int64": "i32",
    "long": "i32",
    "int16": "i32",
    "uint32": "i32",
    "bool": "u8",
    "int8": "u8",
    "bfloat": "bf16",
}


def suggestion(name: str) -> str:
    """What to say of a dtype that isn't there: "did you mean 'f32'? It has f32, ..."."""
    near = _WIDER.get(name.lower())
    if near is None:
        close = difflib.get_close_matches(name.lower(), list(_NAMES), n=1, cutoff=0.5)
        near = _NAMES[close[0]] if close else None
    names = ", ".join(_SIZES)
    return (f"did you mean '{near}'? " if near else "") + f"it has {names}"


# The codes of DLPack's DLDataTypeCode with their bits.
DLPACK = {
    (2, 32): DType.f32,
    (2, 16): DType.f16,
    (4, 16): DType.bf16,
    (10, 8): DType.f8e4m3,
    (12, 8): DType.f8e5m2,
    (0, 32): DType.i32,
    (1, 8): DType.u8,
}
