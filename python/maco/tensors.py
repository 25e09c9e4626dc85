"""Memory of other libraries' tensors: where it is, what is in it, and whether a kernel can have it.

`describe` takes torch tensors, NumPy arrays, and whatever has `__cuda_array_interface__` or `__dlpack__`. Nothing is copied or imported.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .dtypes import DLPACK, DType, DTypeLike, as_dtype
from .errors import Error

__all__ = ["ALIGNMENT", "Memory", "check", "describe"]

ALIGNMENT = 16
"""Bytes; addresses of tensors that a kernel works in are multiples of it."""


@dataclass(frozen=True)
class Memory:
    """Where a tensor's elements lie.

    `strides` are in elements. `device` is "cpu" or "cuda", `index` the GPU's number (0 on the CPU). `bytes` are those of the elements,
    without gaps between them. `keep` holds what keeps the memory alive.
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    index: int
    writable: bool
    keep: Any

    @property
    def elements(self) -> int:
        """How many there are; 1 of a tensor without axes."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        return self.elements * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether elements lie row-major and dense. Strides of axes of extent 1 don't matter, and nothing does if there are no elements."""
        return self.elements == 0 or all(
            extent == 1 or have == want for extent, have, want in zip(self.shape, self.strides, _dense(self.shape), strict=True)
        )

    @property
    def place(self) -> str:
        """The device in words: "the CPU", "GPU 1"."""
        return "the CPU" if self.device == "cpu" else f"GPU {self.index}"


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def describe(tensor: Any, name: str = "tensor", dtype: DTypeLike | None = None) -> Memory:
    """Where `tensor` lies. `name` is what messages call it.

    With `dtype`, elements of as many bytes are taken for that type: NumPy's uint16 for bf16, uint8 for f8. Raises `maco.Error` for
    element types that MACO has not and for memory of other devices, and TypeError for what has no memory that can be found.
    """
    meant = None if dtype is None else as_dtype(dtype)
    found = _torch(tensor, name, meant)
    if found is None:
        found = _numpy(tensor, name, meant)
    if found is None:
        found = _cuda_interface(tensor, name, meant)
    if found is None:
        found = _dlpack(tensor, name, meant)
    if found is None:
        raise TypeError(
            f"'{name}': a tensor is expected (of torch or NumPy, or with __dlpack__ or __cuda_array_interface__), "
            f"not {type(tensor).__name__}"
        )
    return found


def _taken(name: str, theirs: Any, size: int, meant: DType | None) -> DType:
    """The element type: `meant` where elements of `size` bytes hold its bits, else what `theirs` is."""
    if meant is None:
        try:
            return as_dtype(theirs)
        except Error as error:
            hint = "; with dtype= its elements are taken for the bits of bf16 or f16" if str(theirs).endswith("uint16") else ""
            raise Error(f"'{name}': {error}{hint}") from None
    try:
        own: DType | None = as_dtype(theirs)
    except Error:
        own = None
    if own is meant:
        return meant
    words = str(theirs).rsplit(".", 1)[-1]
    bits = words in ("uint8", "uint16", "uint32", "int8", "int16") or own is DType.u8
    if size != meant.itemsize or not bits:
        raise Error(f"'{name}' is taken for {meant}, of which elements have {meant.itemsize} bytes, but holds {words}")
    return meant


def _torch(tensor: Any, name: str, meant: DType | None) -> Memory | None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    if tensor.layout is not torch.strided:
        raise Error(f"'{name}' is {str(tensor.layout).rsplit('.', 1)[-1]}; only dense tensors can be used: call .to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise Error(f"'{name}' is on the device '{tensor.device}'; MACO has 'cpu' and 'cuda'")
    if tensor.is_neg():
        raise Error(f"'{name}' is a view that negates; call .resolve_neg()")
    return Memory(
        address=tensor.data_ptr(),
        dtype=_taken(name, tensor.dtype, tensor.element_size(), meant),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        device=tensor.device.type,
        index=tensor.device.index or 0,
        writable=True,
        keep=tensor,
    )


def _numpy(tensor: Any, name: str, meant: DType | None) -> Memory | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(tensor, (numpy.ndarray, numpy.generic)):
        return None
    array = numpy.asarray(tensor)
    size = array.dtype.itemsize
    dtype = _taken(name, array.dtype, size, meant)
    if any(step % size for step in array.strides) and array.size:
        raise Error(f"'{name}' has strides of {array.strides} bytes, which are no multiples of an element's {size}; copy it")
    return Memory(
        address=array.ctypes.data,
        dtype=dtype,
        shape=tuple(array.shape),
        strides=tuple(step // size for step in array.strides),
        device="cpu",
        index=0,
        writable=bool(array.flags.writeable),
        keep=array,
    )


_TYPESTR = {"<f4": "float32", "<f2": "float16", "<i4": "int32", "|u1": "uint8", "<u2": "uint16", "|i1": "int8", "<i2": "int16"}


def _cuda_interface(tensor: Any, name: str, meant: DType | None) -> Memory | None:
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        return None
    typestr = interface["typestr"]
    size = int(typestr[2:])
    dtype = _taken(name, _TYPESTR.get(typestr, typestr), size, meant)
    if interface.get("mask") is not None:
        raise Error(f"'{name}' has a mask; MACO knows none")
    shape = tuple(int(extent) for extent in interface["shape"])
    steps = interface.get("strides")
    address, read_only = interface["data"]
    index = getattr(getattr(tensor, "device", None), "id", None)
    return Memory(
        address=int(address or 0),
        dtype=dtype,
        shape=shape,
        strides=_dense(shape) if steps is None else tuple(int(step) // size for step in steps),
        device="cuda",
        index=index if isinstance(index, int) else 0,
        writable=not read_only,
        keep=tensor,
    )


# ---- DLPack ----------------------------------------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


def _capsule_pointer(capsule: Any, name: bytes) -> int | None:
    api = ctypes.pythonapi
    valid = api.PyCapsule_IsValid
    valid.restype, valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    if not valid(capsule, name):
        return None
    pointer = api.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found: int | None = pointer(capsule, name)
    return found


def _dlpack(tensor: Any, name: str, meant: DType | None) -> Memory | None:
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        return None
    kind, index = tensor.__dlpack_device__()
    device = _DEVICES.get(int(kind))
    if device is None:
        raise Error(f"'{name}' is on a device of DLPack's kind {int(kind)}; MACO has the CPU and CUDA GPUs")
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0))
    except TypeError:  # from before version 1
        capsule = tensor.__dlpack__()
    except BufferError as error:
        raise Error(f"'{name}' can't be given by DLPack: {error}") from error
    # The capsule keeps its name, so that its own destructor frees it when nobody holds it any more.
    pointer, writable = _capsule_pointer(capsule, b"dltensor_versioned"), True
    if pointer is not None:
        versioned = _Versioned.from_address(pointer)
        if versioned.major != 1:
            raise Error(f"'{name}' comes by version {versioned.major} of DLPack; MACO knows version 1 and those before")
        raw, writable = versioned.tensor, not versioned.flags & 1
    else:
        pointer = _capsule_pointer(capsule, b"dltensor")
        if pointer is None:
            raise Error(f"'{name}': __dlpack__ gave no capsule of DLPack's")
        raw = _DLTensor.from_address(pointer)
    size = (raw.bits * raw.lanes + 7) // 8
    known = DLPACK.get((raw.code, raw.bits)) if raw.lanes == 1 else None
    word = f"{_CODES.get(raw.code, f'code {raw.code}, ')}{raw.bits}" + (f"x{raw.lanes}" if raw.lanes != 1 else "")
    shape = tuple(raw.shape[i] for i in range(raw.ndim))
    return Memory(
        address=(raw.data or 0) + raw.byte_offset,
        dtype=_taken(name, known if known is not None else word, size, meant),
        shape=shape,
        strides=tuple(raw.strides[i] for i in range(raw.ndim)) if raw.strides else _dense(shape),
        device=device,
        index=int(index) if device == "cuda" else 0,
        writable=writable,
        keep=(tensor, capsule),
    )


# ---- checks ----------------------------------------------------------------------------------------------------------------------------


def shape_text(shape: Sequence[int]) -> str:
    """A shape as MACO's messages have it: "[4,8]"."""
    return f"[{','.join(map(str, shape))}]"


def check(
    memory: Memory,
    name: str,
    *,
    dtype: DType | None = None,
    shape: Sequence[int] | None = None,
    rows_up_to: bool = False,
    device: str | None = None,
    index: int | None = None,
    contiguous: bool = True,
    aligned: bool = True,
    writable: bool = False,
) -> None:
    """Raises `maco.Error` if the memory isn't what is asked for; None asks for nothing.

    `shape` is in elements; with `rows_up_to` axis 0 may be shorter. `device` is "cpu" or "cuda", `index` the GPU's number. Alignment is
    to 16 bytes, and asked of tensors with elements only. The text names the tensor, what it is and what is asked.
    """
    if dtype is not None and memory.dtype is not dtype:
        bits = memory.dtype is DType.u8 and dtype.itemsize == 1
        hint = f"; with dtype='{dtype}' its elements are taken for the bits of it" if bits else ""
        raise Error(f"'{name}' is {dtype}, but the tensor is {memory.dtype}{hint}")
    if shape is not None:
        want = tuple(shape)
        fits = memory.shape == want or (
            rows_up_to and len(memory.shape) == len(want) and memory.shape[1:] == want[1:] and bool(want) and memory.shape[0] <= want[0]
        )
        if not fits:
            most = "up to " if rows_up_to else ""
            raise Error(f"'{name}' has the shape {most}{shape_text(want)}, but the tensor has {shape_text(memory.shape)}")
    if device is not None and memory.device != device:
        wants = "the CPU" if device == "cpu" else "a GPU"
        raise Error(f"'{name}' must be on {wants}, but the tensor is on {memory.place}")
    if index is not None and memory.device == "cuda" and memory.index != index:
        raise Error(f"'{name}' must be on GPU {index}, but the tensor is on {memory.place}")
    if contiguous and not memory.contiguous:
        raise Error(
            f"'{name}' must be contiguous, with strides {shape_text(_dense(memory.shape))}, "
            f"but the tensor has {shape_text(memory.strides)}; call .contiguous() or copy it"
        )
    if memory.elements and memory.address == 0:
        raise Error(f"'{name}': the tensor has no memory")
    if aligned and memory.elements and memory.address % ALIGNMENT:
        raise Error(
            f"'{name}' must be aligned to {ALIGNMENT} bytes, but the tensor's address, {memory.address:#x}, "
            f"is {memory.address % ALIGNMENT} beyond a multiple; copy it, or use write()"
        )
    if writable and not memory.writable:
        raise Error(f"'{name}' is written by the kernel, but the tensor is read-only")
