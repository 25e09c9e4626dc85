"""maco_c.h by ctypes: where the library is, its functions and structs, errors as exceptions, waits that Ctrl-C ends.

Nothing is loaded before the first call that needs the library. Calls release the GIL while they are in the library.

Ctrl-C: Python delivers it between bytecodes of the main thread, never inside of a C function. A call that may take long therefore runs in
a thread of its own when it is made from the main thread, which waits for it in Python. When KeyboardInterrupt comes, the C function goes
on in that thread until it ends by itself, at the latest after the session's time-out; what it gives is thrown away.

Fork: threads and memory of the library don't survive one. A call in a forked child raises `maco.Error`, and objects that the child has
copies of free nothing there.
"""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, TypeVar

from .errors import Diagnostic, Error, ErrorCode, Unavailable, from_library

T = TypeVar("T")

PACKAGE = Path(__file__).resolve().parent


# ---- structs and functions of maco_c.h -------------------------------------------------------------------------------------------------


class CompileOptions(Structure):
    """maco_compile_options."""

    _fields_ = [
        ("size", c_size_t),
        ("target", c_char_p),
        ("board", c_char_p),
        ("sms", c_int64),
        ("no_load_ahead", c_int),
        ("no_fuse", c_int),
        ("no_prune", c_int),
        ("no_packets", c_int),
        ("include_folders", POINTER(c_char_p)),
        ("defines", POINTER(c_char_p)),
        ("include_folder_count", c_size_t),
        ("define_count", c_size_t),
        ("max_warnings", c_int64),
        ("no_fuse_rules", POINTER(c_char_p)),
        ("no_fuse_rule_count", c_size_t),
    ]


class TensorInfo(Structure):
    """maco_tensor_info."""

    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("dtype", c_int),
        ("axes", c_int),
        ("shape", c_int64 * 4),
        ("bytes", c_int64),
    ]


PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class SessionOptions(Structure):
    """maco_session_options."""

    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("ranks_per_gpu", c_int),
        ("timeout_ms", c_int64),
        ("process_a_rank", c_int),
        ("reserved", c_int),
        ("peer_memory", c_char_p),
        ("profile", c_int),
        ("has_order", c_int),
        ("order", c_uint64),
        ("progress", PROGRESS),
        ("progress_data", c_void_p),
        ("group", c_char_p),
        ("rank", c_int),
        ("has_gpu", c_int),
        ("gpu", c_int),
        ("reserved_too", c_int),
    ]


class DiagnosticInfo(Structure):
    """maco_diagnostic."""

    _fields_ = [
        ("size", c_size_t),
        ("severity", c_int),
        ("line", c_int),
        ("column", c_int),
        ("reserved", c_int),
        ("file", c_char_p),
        ("message", c_char_p),
    ]


class Stopped(Structure):
    """maco_stopped."""

    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int),
        ("reserved", c_int),
        ("task", c_char_p),
        ("event", c_char_p),
        ("expected", c_int64),
        ("seen", c_int64),
    ]


class VariableInfo(Structure):
    """maco_variable_info."""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("lowest", c_int64),
        ("highest", c_int64),
        ("is_dim", c_int),
        ("reserved", c_int),
    ]


class Value(Structure):
    """maco_value."""

    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Address(Structure):
    """maco_address."""

    _fields_ = [("name", c_char_p), ("at", POINTER(c_void_p))]


class Place(Structure):
    """maco_place."""

    _fields_ = [("tensor", c_int), ("reserved", c_int), ("at", POINTER(c_void_p))]


class ModelOptions(Structure):
    """maco_model_options."""

    _fields_ = [
        ("size", c_size_t),
        ("world", c_int),
        ("has_dtype", c_int),
        ("dtype", c_int),
        ("reserved", c_int),
        ("max_seq", c_int64),
        ("chunk", c_int64),
        ("verify_rows", c_int64),
        ("architecture", c_char_p),
    ]


LOADED = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64)


STRUCTS: dict[str, type[Structure]] = {
    "maco_compile_options": CompileOptions,
    "maco_tensor_info": TensorInfo,
    "maco_session_options": SessionOptions,
    "maco_value": Value,
    "maco_address": Address,
    "maco_place": Place,
    "maco_diagnostic": DiagnosticInfo,
    "maco_stopped": Stopped,
    "maco_variable_info": VariableInfo,
    "maco_model_options": ModelOptions,
}
SEVERITIES = ("error", "warning", "note")  # maco_severity
KINDS = ("input", "param", "state", "output")  # maco_kind
DEVICES = {"cuda": 0, "cpu": 1}  # maco_device

_ERROR = POINTER(c_void_p)
_STRINGS = POINTER(c_char_p)
_VALUES = POINTER(Value)
# What each function gives and takes. char* that the caller frees are void pointers here, since ctypes copies what a char* points to.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "maco_version": (c_char_p, []),
    "maco_error_code": (c_int, [c_void_p]),
    "maco_error_message": (c_char_p, [c_void_p]),
    "maco_error_free": (None, [c_void_p]),
    "maco_error_diagnostics": (c_size_t, [c_void_p]),
    "maco_error_diagnostic": (c_int, [c_void_p, c_size_t, POINTER(DiagnosticInfo)]),
    "maco_error_stopped": (c_int, [c_void_p, POINTER(Stopped)]),
    "maco_string_free": (None, [c_void_p]),
    "maco_graph_parse": (c_void_p, [c_char_p, c_char_p, _ERROR]),
    "maco_graph_read": (c_void_p, [c_char_p, _ERROR]),
    "maco_graph_parse_with": (c_void_p, [c_char_p, c_char_p, _STRINGS, c_size_t, _ERROR]),
    "maco_import_plan": (c_void_p, [c_char_p, c_int64, c_int, _ERROR]),
    "maco_graph_free": (None, [c_void_p]),
    "maco_graph_text": (c_void_p, [c_void_p]),
    "maco_compile": (c_void_p, [c_void_p, POINTER(CompileOptions), _ERROR]),
    "maco_kernel_from_source": (c_void_p, [c_char_p, _ERROR]),
    "maco_kernel_free": (None, [c_void_p]),
    "maco_kernel_source": (c_char_p, [c_void_p]),
    "maco_kernel_report": (c_char_p, [c_void_p]),
    "maco_kernel_world": (c_int, [c_void_p]),
    "maco_kernel_name": (c_char_p, [c_void_p]),
    "maco_kernel_target": (c_char_p, [c_void_p]),
    "maco_kernel_warnings": (c_size_t, [c_void_p]),
    "maco_kernel_warning": (c_int, [c_void_p, c_size_t, POINTER(DiagnosticInfo)]),
    "maco_kernel_variables": (c_int, [c_void_p]),
    "maco_kernel_variable": (c_int, [c_void_p, c_int, POINTER(VariableInfo), _ERROR]),
    "maco_kernel_tensors": (c_int, [c_void_p]),
    "maco_kernel_tensor": (c_int, [c_void_p, c_int, POINTER(TensorInfo), _ERROR]),
    "maco_session_open": (c_void_p, [c_void_p, POINTER(SessionOptions), _ERROR]),
    "maco_session_free": (None, [c_void_p]),
    "maco_session_bind": (c_int, [c_void_p, c_int, c_char_p, c_void_p, c_int64, _ERROR]),
    "maco_session_share": (c_int, [c_void_p, c_void_p, _ERROR]),
    "maco_session_allocate": (c_int, [c_void_p, _ERROR]),
    "maco_session_address": (c_void_p, [c_void_p, c_int, c_char_p, _ERROR]),
    "maco_session_write": (c_int, [c_void_p, c_int, c_char_p, c_void_p, c_int64, _ERROR]),
    "maco_session_read": (c_int, [c_void_p, c_int, c_char_p, c_void_p, c_int64, _ERROR]),
    "maco_session_write_at": (c_int, [c_void_p, c_int, c_char_p, c_int64, c_void_p, c_int64, _ERROR]),
    "maco_session_read_at": (c_int, [c_void_p, c_int, c_char_p, c_int64, c_void_p, c_int64, _ERROR]),
    "maco_session_is_here": (c_int, [c_void_p, c_int]),
    "maco_session_run": (c_int, [c_void_p, _VALUES, c_size_t, _ERROR]),
    "maco_session_launch": (c_int, [c_void_p, _VALUES, c_size_t, POINTER(c_void_p), _ERROR]),
    "maco_session_read_as": (c_int, [c_void_p, c_char_p, c_int, c_int, _ERROR]),
    "maco_session_launch_at": (c_int, [c_void_p, _VALUES, c_size_t, POINTER(Address), c_size_t, POINTER(c_void_p), _ERROR]),
    "maco_session_launch_with": (
        c_int,
        [c_void_p, _VALUES, c_size_t, POINTER(Address), c_size_t, POINTER(Place), c_size_t, POINTER(c_void_p), _ERROR],
    ),
    "maco_session_wait": (c_int, [c_void_p, _ERROR]),
    "maco_session_stop": (None, [c_void_p]),
    "maco_session_ended": (c_int, [c_void_p, POINTER(c_int), _ERROR]),
    "maco_session_profile": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_void_p), _ERROR]),
    "maco_session_bench": (c_int, [c_void_p, _VALUES, c_size_t, c_int, POINTER(c_double), _ERROR]),
    "maco_session_load": (c_int, [c_void_p, c_char_p, c_char_p, LOADED, c_void_p, _ERROR]),
    "maco_model_import": (c_void_p, [c_char_p, POINTER(ModelOptions), _ERROR]),
    "maco_model_free": (None, [c_void_p]),
    "maco_model_graph": (c_char_p, [c_void_p, c_char_p]),
    "maco_model_weights": (c_char_p, [c_void_p]),
}


# ---- the library -----------------------------------------------------------------------------------------------------------------------


def build_folder() -> Path | None:
    """The build tree of the checkout that this package lies in; None where it lies in none."""
    checkout = PACKAGE.parent.parent
    return checkout / "build" if (checkout / "runtime" / "include" / "maco" / "maco_c.h").is_file() else None


def candidates() -> list[Path]:
    """Where libmaco.so is looked for, first choice first; with MACO_LIBRARY set there only."""
    chosen = os.environ.get("MACO_LIBRARY")
    if chosen:
        path = Path(chosen)
        return _in_folder(path) or [path / "libmaco.so"] if path.is_dir() else [path]
    found = _in_folder(PACKAGE / "_lib")
    build = build_folder()
    if build:
        found += _in_folder(build / "lib")
    return found


def _in_folder(folder: Path) -> list[Path]:
    exact = folder / "libmaco.so"
    if exact.exists():
        return [exact]
    return sorted(folder.glob("libmaco.so.*"), reverse=True)[:1]


class _Library:
    """The open library, once a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.dll: ctypes.CDLL | None = None
        self.path = ""
        self.forked = False  # since it was loaded, and this is the child

    def get(self) -> ctypes.CDLL:
        dll = self.dll
        if dll is not None:
            if self.forked:
                raise Error(
                    "MACO was loaded before this process was forked, and its threads and memory don't survive a fork; "
                    "start processes with multiprocessing.get_context('spawn')"
                )
            return dll
        with self.lock:
            if self.dll is None:
                self._load()
            assert self.dll is not None
            return self.dll

    def _load(self) -> None:
        tried = []
        for path in candidates():
            try:
                dll = ctypes.CDLL(os.fspath(path))
            except OSError as error:
                tried.append(str(error) if path.exists() else f"{path}: there is no such file")
                continue
            try:
                for name, (result, arguments) in FUNCTIONS.items():
                    function = getattr(dll, name)
                    function.restype, function.argtypes = result, arguments
            except AttributeError as error:
                tried.append(f"{path}: another version of the library: {error}")
                continue
            self.path, self.dll = os.fspath(path), dll
            return
        if os.environ.get("MACO_LIBRARY"):
            advice = "set MACO_LIBRARY to the file libmaco.so or its folder, or unset it"
        elif build_folder():
            advice = "build it (tools/setup.sh), or set MACO_LIBRARY to the file or its folder"
        elif any("cannot open shared object file" in text or "version `" in text for text in tried):
            advice = "the package was made for another distribution: install it from its sources, or install what is missing"
        else:
            advice = "reinstall the package, or set MACO_LIBRARY to the file or its folder"
        looked = "; ".join(tried) or f"there is none in {PACKAGE / '_lib'}" + (f" or {build_folder()}/lib" if build_folder() else "")
        raise Unavailable(f"libmaco.so can't be loaded: {looked}; {advice}")


_library = _Library()


def _in_child() -> None:
    # What other threads held is held for ever in a forked child.
    global _idle
    _library.lock = threading.Lock()
    _library.forked = _library.dll is not None
    _idle = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def library() -> ctypes.CDLL:
    """The library. Raises `maco.Unavailable` where there is none, and `maco.Error` in a child that was forked after it was loaded."""
    return _library.get()


def library_path() -> str:
    """The file that was loaded. Raises as `library`."""
    library()
    return _library.path


def version() -> str:
    """The library's version, "0.1.0"."""
    text: bytes = library().maco_version()
    return text.decode()


def forked() -> bool:
    """Whether this is a child that was forked after the library was loaded."""
    return _library.forked


# ---- calls -----------------------------------------------------------------------------------------------------------------------------


def encoded(text: str, what: str) -> bytes:
    """A string for the library, in UTF-8. Raises `maco.Error` if a 0 would end it early."""
    if "\0" in text:
        raise Error(f"{what} has a 0 in it")
    return text.encode()


def strings(texts: Iterable[str], what: str) -> Any:
    """An array of `const char*`."""
    made = [encoded(text, what) for text in texts]
    return (c_char_p * len(made))(*made)


def call(name: str, *arguments: Any) -> Any:
    """Calls a function that takes a `maco_error**` last; raises what it says. Gives what the function gives."""
    error = c_void_p()
    result = getattr(library(), name)(*arguments, byref(error))
    if error.value is not None:
        raise taken_error(error)
    status = FUNCTIONS[name][0] is c_int
    if (status and result != 0) or (not status and result is None and name != "maco_session_address"):
        raise Error(f"{name} failed and didn't say why", code=ErrorCode.INTERNAL)
    return result


def taken_error(error: c_void_p) -> Error:
    """The exception for an error that a function gave away, which is freed here."""
    dll = library()
    code = dll.maco_error_code(error)
    message = dll.maco_error_message(error).decode(errors="replace")
    found = diagnostics("maco_error", error.value or 0)
    stopped = Stopped(size=ctypes.sizeof(Stopped))
    what = None
    if dll.maco_error_stopped(error, byref(stopped)) == 0:
        what = (stopped.rank, stopped.task.decode(), stopped.event.decode(), stopped.expected, stopped.seen)
    dll.maco_error_free(error)
    return from_library(code, message, found, what)


def diagnostics(of: str, pointer: int) -> list[Diagnostic]:
    """The diagnostics of a "maco_error", or the warnings of a "maco_kernel", in order."""
    dll = library()
    all_of, one_of = (dll.maco_error_diagnostics, dll.maco_error_diagnostic)
    if of == "maco_kernel":
        all_of, one_of = (dll.maco_kernel_warnings, dll.maco_kernel_warning)
    found = []
    one = DiagnosticInfo(size=ctypes.sizeof(DiagnosticInfo))
    for i in range(all_of(pointer)):
        if one_of(pointer, i, byref(one)) == 0:
            text = (one.message or b"").decode(errors="replace")
            found.append(Diagnostic(SEVERITIES[one.severity], (one.file or b"").decode(errors="replace"), one.line, one.column, text))
    return found


def taken_string(pointer: int | None) -> str:
    """The text of a string that a function gave away, which is freed here."""
    if pointer is None:
        raise Error("the library has no memory for a text", code=ErrorCode.INTERNAL)
    text = ctypes.string_at(pointer).decode()
    library().maco_string_free(pointer)
    return text


class Handle:
    """A pointer that the library gave, and the function that frees it.

    It is freed once: when its owner is gone, `close` is called or the process ends, but not before calls that use it have ended. In a
    forked child it isn't freed. May be used by several threads. `keep` holds what has to outlive it.
    """

    def __init__(self, owner: object, pointer: int, free: str) -> None:
        self._pointer: int | None = pointer
        self._free = free
        self._uses = 0
        self._released = False  # by its owner
        self._lock = threading.Lock()
        self.keep: dict[Any, Any] = {}
        self._finalizer = weakref.finalize(owner, self._release)

    @property
    def closed(self) -> bool:
        return self._released

    def close(self) -> None:
        """Frees it, or lets the last call that uses it do so. Doing so twice is allowed."""
        self._finalizer()

    def _release(self) -> None:
        self._released = True
        if _library.forked:
            return
        with self._lock:
            if self._uses:
                return  # the last `done` frees it
            pointer, self._pointer = self._pointer, None
        self._free_now(pointer)

    def _free_now(self, pointer: int | None) -> None:
        if pointer is not None:
            getattr(library(), self._free)(pointer)
            self.keep.clear()

    def begin(self) -> int:
        """The pointer, which isn't freed before as many calls of `done`. Raises `maco.Error` in a forked child."""
        library()
        with self._lock:
            if self._pointer is None or self._released:
                raise Error("it was closed")
            self._uses += 1
            return self._pointer

    def done(self) -> None:
        if _library.forked:
            return
        with self._lock:
            self._uses -= 1
            if self._uses or not self._released:
                return
            pointer, self._pointer = self._pointer, None
        self._free_now(pointer)

    @contextmanager
    def use(self) -> Iterator[int]:
        """The pointer, for the length of a `with`."""
        pointer = self.begin()
        try:
            yield pointer
        finally:
            self.done()


# ---- waiting ---------------------------------------------------------------------------------------------------------------------------


class _Job:
    """A call in a worker's hands."""

    def __init__(self, function: Callable[[], Any], dispose: Callable[[Any], None] | None, last: Callable[[], None] | None) -> None:
        self.function = function
        self.dispose = dispose
        self.last = last
        self.lock = threading.Lock()  # of the next three
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.ended = threading.Lock()  # held until it has ended
        self.ended.acquire()

    def work(self) -> bool:
        """Does it. False if nobody waits for it any more."""
        result, error = None, None
        try:
            result = self.function()
        except BaseException as e:  # noqa: BLE001 (it is raised where the call was made)
            error = e
        finally:
            if self.last:
                self.last()
        with self.lock:
            self.result, self.error = result, error
            abandoned = self.abandoned
        if abandoned and error is None and self.dispose:
            self.dispose(result)
        self.done = True
        self.ended.release()
        return not abandoned

    def abandon(self) -> None:
        with self.lock:
            self.abandoned = True
            late = self.result
        if late is not None and self.dispose:
            self.dispose(late)


class _Worker:
    """A thread that does calls for the main thread, one after the other."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="maco-call", daemon=True).start()

    def _loop(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None or not job.work():
                return
            del job


_idle: _Worker | None = None  # used by the main thread alone
_POLL_SECONDS = 0.1


_STOP_SECONDS = 10.0


def _stopped(job: _Job, stop: Callable[[], None]) -> bool:
    """Whether the job has ended after it was asked to. A second signal ends the patience."""
    try:
        stop()
        return job.done or job.ended.acquire(timeout=_STOP_SECONDS)  # the signal may have come behind the wait's own acquire
    except BaseException:  # noqa: BLE001 (the first one goes on)
        return False


def interruptible(
    function: Callable[[], T],
    *,
    dispose: Callable[[T], None] | None = None,
    last: Callable[[], None] | None = None,
    stop: Callable[[], None] | None = None,
    interrupted: Callable[[], None] | None = None,
) -> T:
    """Does a call that may take long, so that Ctrl-C ends the wait for it.

    In the main thread another thread makes the call; in others, to which Python delivers no signals, it is made directly. After an
    interrupt (KeyboardInterrupt, or whatever a signal's handler raises) `stop` is called, which asks the call to end, and some seconds are
    given to it. If it doesn't, `interrupted` is called, the call goes on by itself, and `dispose` gets what it gives. `last` is called when
    the call has ended, in any case.
    """
    global _idle
    if threading.current_thread() is not threading.main_thread():
        try:
            return function()
        finally:
            if last:
                last()
    job = _Job(function, dispose, last)
    worker: _Worker | None = None
    given = False
    # A signal's handler may raise behind any of these calls.
    try:
        library()  # in this thread: what it raises is for the caller
        worker, _idle = _idle or _Worker(), None
        given = True
        worker.jobs.put(job)
        while not job.ended.acquire(timeout=_POLL_SECONDS):
            pass
    except BaseException:
        if worker:
            worker.jobs.put(None)
        if given and not (stop and _stopped(job, stop)):
            job.abandon()
            if interrupted:
                interrupted()
        elif given and job.error is None and dispose:
            dispose(job.result)
        elif last:
            last()
        raise
    _idle = worker
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # no cycle of the exception and this frame
    return job.result  # type: ignore[no-any-return]


# Libraries of CUDA's that libmaco.so opens by name: the variables that choose others, and folders of site-packages that have them.
_CUDA_LIBRARIES = (
    ("libnvrtc.so.", "MACO_NVRTC", ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")),
    ("libnccl.so.", "MACO_NCCL", ("nvidia/nccl/lib",)),
)
_preloaded: list[ctypes.CDLL] = []
_looked = False


def prefer_packages() -> None:
    """Has libmaco.so take NVRTC and NCCL that the process has loaded, else those of Python's packages, before a toolkit's.

    The loader gives what is loaded to whoever asks for it by name, so those of packages are loaded here, once.
    """
    global _looked
    if _looked:
        return
    _looked = True
    try:
        loaded = Path("/proc/self/maps").read_text()
    except OSError:
        loaded = ""
    for stem, variable, folders in _CUDA_LIBRARIES:
        if os.environ.get(variable) or f"/{stem}" in loaded:
            continue
        found = (path for root in sys.path if root for folder in folders for path in sorted(Path(root, folder).glob(stem + "*")))
        for path in found:
            try:
                _preloaded.append(ctypes.CDLL(os.fspath(path)))
                break
            except OSError:
                continue


def environment_device() -> str | None:
    """What MACO_DEVICE says: "cpu" or "cuda"; None if it isn't set. Raises `maco.Error` for any other word."""
    chosen = os.environ.get("MACO_DEVICE")
    if not chosen:
        return None
    if chosen not in DEVICES:
        raise Error(f"MACO_DEVICE is '{chosen}', but must be 'cpu' or 'cuda'")
    return chosen


def program(name: str) -> Path:
    """One of the packaged programs.

    They are looked for in `bin` beside the folder of MACO_LIBRARY, in `maco/_bin`, in the build tree and in PATH. Raises
    `maco.Unavailable` if it is nowhere.
    """
    import shutil

    folders = [PACKAGE / "_bin"]
    chosen = os.environ.get("MACO_LIBRARY")
    if chosen:
        library_folder = Path(chosen) if Path(chosen).is_dir() else Path(chosen).parent
        folders.insert(0, library_folder.parent / "bin")
    build = build_folder()
    if build:
        folders.append(build / "bin")
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = shutil.which(name)
    if found:
        return Path(found)
    raise Unavailable(f"the program {name} is neither in {' nor in '.join(map(str, folders))} nor in PATH; reinstall the package")
