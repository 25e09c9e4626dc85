"""Graphs compiled for the machine at hand, and kept on disk, so that the next process needn't compile them.

An entry is one line of hexadecimal digits, SHA-256 of what follows, and the kernel's source. It is written under another name and renamed,
so that a reader sees a whole one or none, and what is damaged all the same is compiled again. Entries lie where the library keeps cubins.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import Error
from ..graph import Graph
from ..kernel import Kernel

__all__ = ["cache_folder", "cached_kernel", "gpu_options"]

MOST_ENTRIES = 128
"""When there are more, those that were used longest ago go."""

# By compute capability: the target, and its boards by what their GPUs' names have in them. The first that a GPU can run is its own.
_TARGETS: tuple[tuple[tuple[int, int], str, tuple[tuple[str, str], ...]], ...] = (
    ((12, 0), "sm_120", (("RTX PRO 6000", "rtx-pro-6000"),)),
    ((10, 0), "sm_100a", (("B200", "b200"),)),
    ((9, 0), "sm_90a", (("GH200", "gh200"), ("H200", "h200"), ("H100", "h100"))),
    ((8, 9), "sm_89", (("L40S", "l40s"),)),
    ((8, 6), "sm_86", (("A40", "a40"),)),
    ((8, 0), "sm_80", (("A100", "a100"),)),
    ((7, 5), "sm_75", (("T4", "t4"),)),
    ((7, 0), "sm_70", (("V100", "v100"),)),
)


def cache_folder() -> Path | None:
    """$MACO_CACHE_DIR (empty: None), else maco below $XDG_CACHE_HOME or ~/.cache; None: there is no cache."""
    own = os.environ.get("MACO_CACHE_DIR")
    if own is not None:
        return Path(own) if own else None
    root = os.environ.get("XDG_CACHE_HOME") or (os.path.join(os.environ["HOME"], ".cache") if os.environ.get("HOME") else "")
    return Path(root, "maco") if root else None


def gpu_options(index: int) -> dict[str, Any]:
    """Options of `Graph.compile` for a GPU: target, board, number of SMs. Raises `maco.Error` for one that is too old."""
    from ..roles import device_sms

    sms = device_sms("cuda", index)
    capability, name = _asked(index)
    letters = name.upper()
    for least, target, boards in _TARGETS:
        # Code with a letter runs on GPUs of that number alone.
        if capability == least or (capability > least and target[-1].isdigit()):
            board = next((board for word, board in boards if word in letters), None)
            return {"target": target, "board": board, "sms": sms}
    raise Error(f"GPU {index} ({name}) has compute capability {capability[0]}.{capability[1]}, and the lowest that MACO has is 7.0")


def _asked(index: int) -> tuple[tuple[int, int], str]:
    driver = ctypes.CDLL("libcuda.so.1")
    device, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    found = []
    if driver.cuDeviceGet(ctypes.byref(device), index) == 0 and driver.cuDeviceGetName(name, len(name), device) == 0:
        for attribute in (75, 76):  # the compute capability's two numbers
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            found.append(value.value)
    return (found[0], found[1]) if found else (0, 0), name.value.decode(errors="replace")


def cached_kernel(text: str, name: str, **options: Any) -> Kernel:
    """The kernel of a graph's text, compiled with options of `Graph.compile`, or as an earlier process compiled it."""
    folder = cache_folder()
    entry = folder / f"{_key(text, options)}.kernel" if folder else None
    if entry:
        source = _read(entry)
        if source is not None:
            with contextlib.suppress(Error):
                return Kernel.from_source(source)
    kernel = Graph.parse(text, name).compile(**options)
    if entry:
        _write(entry, kernel.source)
    return kernel


def _key(text: str, options: dict[str, Any]) -> str:
    library = os.stat(_native.library_path())
    what = (_native.version(), library.st_size, library.st_mtime_ns, sorted(options.items()), text)
    return hashlib.sha256(repr(what).encode()).hexdigest()


def _read(entry: Path) -> str | None:
    try:
        digest, _, source = entry.read_bytes().partition(b"\n")
        if hashlib.sha256(source).hexdigest().encode() != digest:
            return None
        with contextlib.suppress(OSError):
            os.utime(entry)
        return source.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _write(entry: Path, source: str) -> None:
    """Does nothing where the cache can't be written."""
    part = entry.with_name(f"{entry.name}.{secrets.token_hex(8)}.tmp")
    raw = source.encode()
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(hashlib.sha256(raw).hexdigest().encode() + b"\n" + raw)
            os.replace(part, entry)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        _make_room(entry.parent)


def _make_room(folder: Path) -> None:
    entries = []
    for one in folder.glob("*.kernel"):
        with contextlib.suppress(OSError):
            entries.append((one.stat().st_mtime, one))
    for _, one in sorted(entries)[:-MOST_ENTRIES]:
        one.unlink(missing_ok=True)
