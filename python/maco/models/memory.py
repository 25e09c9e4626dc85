"""Integers of 32 bits that the host writes and kernels read, or the other way round: in memory that both see, or on each GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import Unavailable

__all__ = ["ALIGNMENT", "DeviceIntegers", "HostIntegers", "Streams"]

ALIGNMENT = 16
"""Of places of tensors."""
_PORTABLE, _MAPPED = 1, 2
_NON_BLOCKING = 1


class HostIntegers:
    """Zeroed integers at one address for the host and, with `gpu`, for all GPUs. `gpu` is a GPU that will use them.

    `at` are the integers. Kernels must have ended when they are freed, by `close` or with the object.
    """

    def __init__(self, count: int, gpu: int | None = None) -> None:
        if gpu is None:
            self._memory = ctypes.create_string_buffer(4 * count + ALIGNMENT)
            self.address = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
            self._free: Any = None
        else:
            driver = _Gpu(gpu)
            self.address = driver.host_memory(4 * count)
            self._free = weakref.finalize(self, _in_process(driver.free_host), self.address)
        self.at: Any = (ctypes.c_int32 * count).from_address(self.address)

    def close(self) -> None:
        """Frees the memory. May be called twice."""
        self.at = None
        if self._free:
            self._free()


class Streams:
    """A CUDA stream on each GPU of `gpus`. What was put on them must have ended when they are destroyed, by `close` or with the object."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = [_Gpu(gpu) for gpu in gpus]
        self.handles = (ctypes.c_void_p * len(gpus))(*[gpu.stream() for gpu in self.gpus])
        """As the library takes them, one a GPU."""
        self._destroys = [
            weakref.finalize(self, _in_process(gpu.destroy_stream), at) for gpu, at in zip(self.gpus, self.handles, strict=True)
        ]

    def close(self) -> None:
        """Destroys them. Doing so twice is allowed."""
        for destroy in self._destroys:
            destroy()


class DeviceIntegers:
    """In memory of each GPU of `streams`, the same everywhere; without one the host's own. `addresses`: where, for each."""

    def __init__(self, count: int, streams: Streams | None) -> None:
        self._host = None if streams else HostIntegers(count)
        self._streams = streams
        self._gpus = streams.gpus if streams else []
        self.addresses = [self._host.address] if self._host else [gpu.memory(4 * count) for gpu in self._gpus]
        self._frees = [weakref.finalize(self, _in_process(gpu.free), at) for gpu, at in zip(self._gpus, self.addresses, strict=False)]

    def put(self, at: int, numbers: Sequence[int]) -> None:
        """Writes some, from number `at` on, for what is put on the streams behind. No launch that reads them may be under way."""
        if self._streams is None:
            assert self._host is not None
            self._host.at[at : at + len(numbers)] = numbers
            return
        given = (ctypes.c_int32 * len(numbers))(*numbers)
        for gpu, address, stream in zip(self._gpus, self.addresses, self._streams.handles, strict=True):
            gpu.copy(address + 4 * at, given, stream)

    def close(self) -> None:
        """Frees them. Doing so twice is allowed."""
        for free in self._frees:
            free()


def _in_process(free: Callable[[int], None]) -> Callable[[int], None]:
    """The same, but nothing in a forked child."""
    pid = os.getpid()
    return lambda address: free(address) if os.getpid() == pid else None


class _Gpu:
    """The driver's functions on one GPU, in the context that sessions use, too."""

    def __init__(self, index: int) -> None:
        self._index = index
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unavailable(f"this machine has no NVIDIA driver: {error}") from error
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self._driver.cuInit(0), "start")
        self._check(self._driver.cuDeviceGet(ctypes.byref(device), index), "find it")
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device), "open it")
        weakref.finalize(self, _in_process(self._driver.cuDevicePrimaryCtxRelease_v2), device.value)

    def _check(self, result: int, what: str) -> None:
        if result:
            raise Unavailable(f"GPU {self._index}: the driver can't {what} (error {result})")

    @contextmanager
    def _current(self) -> Iterator[None]:
        before = ctypes.c_void_p()
        self._check(self._driver.cuCtxGetCurrent(ctypes.byref(before)), "say which GPU is in use")
        self._check(self._driver.cuCtxSetCurrent(self._context), "use it")
        try:
            yield
        finally:
            self._driver.cuCtxSetCurrent(before)

    def host_memory(self, size: int) -> int:
        """The address of zeroed memory of the host; all GPUs see the memory at this address."""
        address, seen = ctypes.c_void_p(), ctypes.c_void_p()
        with self._current():
            allocated = self._driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), _PORTABLE | _MAPPED)
            self._check(allocated, f"allocate {size} bytes of the host")
            self._check(self._driver.cuMemHostGetDevicePointer_v2(ctypes.byref(seen), address, 0), "map the host's memory")
        if not address.value or seen.value != address.value:
            raise Unavailable(f"GPU {self._index} sees the host's memory at other addresses than the host")
        ctypes.memset(address, 0, size)
        return address.value

    def memory(self, size: int) -> int:
        """The address of memory on the GPU."""
        address = ctypes.c_uint64()
        with self._current():
            self._check(self._driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), f"allocate {size} bytes")
        return address.value

    def copy(self, address: int, given: Any, stream: int) -> None:
        """Copies an array of the host's on a stream. The array has been read when this returns, since its memory is pageable."""
        with self._current():
            size = ctypes.c_size_t(ctypes.sizeof(given))
            self._check(self._driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(address), given, size, ctypes.c_void_p(stream)), "copy")

    def stream(self) -> int:
        """The handle of a new stream that waits for no other."""
        stream = ctypes.c_void_p()
        with self._current():
            self._check(self._driver.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING), "make a stream")
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        """Destroys what `stream` gave."""
        with contextlib.suppress(Unavailable), self._current():
            self._driver.cuStreamDestroy_v2(ctypes.c_void_p(stream))

    def free_host(self, address: int) -> None:
        """Frees what `host_memory` gave."""
        with contextlib.suppress(Unavailable), self._current():
            self._driver.cuMemFreeHost(ctypes.c_void_p(address))

    def free(self, address: int) -> None:
        """Frees what `memory` gave."""
        with contextlib.suppress(Unavailable), self._current():
            self._driver.cuMemFree_v2(ctypes.c_uint64(address))
