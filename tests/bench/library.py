"""libmaco.so from Python: graphs are compiled and timed in this process, so that GPUs are set up once for many of them."""
import concurrent.futures
import ctypes as c
import glob
import os
import random
import struct
import subprocess
import tempfile
import time


class MacoError(Exception):
    pass


class CompileOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("target", c.c_char_p), ("board", c.c_char_p), ("sms", c.c_int64), ("no_load_ahead", c.c_int),
                ("no_fuse", c.c_int), ("no_prune", c.c_int), ("no_packets", c.c_int)]


class SessionOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_int), ("ranks_per_gpu", c.c_int), ("timeout_ms", c.c_int64),
                ("process_a_rank", c.c_int), ("reserved", c.c_int)]


class TensorInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("dtype", c.c_int), ("axes", c.c_int), ("shape", c.c_int64 * 4),
                ("bytes", c.c_int64)]


OUTPUT, BF16 = 3, 2  # maco_kind, maco_dtype


def bf16_numbers(size):
    """So many bytes of small normal numbers, the same ones over and over."""
    dice = random.Random(1)
    block = b"".join(struct.pack("<f", dice.gauss(0, 0.05))[2:] for _ in range(1 << 15))
    return (block * (size // len(block) + 1))[:size]


def library_path(programs):
    """The path of libmaco.so beside the folder of the programs, or in it; links to it may be missing."""
    for folder in (os.path.join(programs, os.pardir, "lib"), programs):
        if found := sorted(glob.glob(os.path.join(folder, "libmaco.so*")), key=len):
            return os.path.abspath(found[0])
    raise MacoError(f"no libmaco.so beside {programs}: cmake --build --preset gpu --target maco")


class Library:
    def __init__(self, programs, device="cuda"):
        self.programs, self.device = programs, device
        self.lib = c.CDLL(library_path(programs))
        handles = ("maco_graph_parse", "maco_compile", "maco_session_open")
        for name in handles:
            getattr(self.lib, name).restype = c.c_void_p
        self.lib.maco_error_message.restype = c.c_char_p
        if device == "cuda":
            self._keep_contexts()

    def _keep_contexts(self):
        """Else each session would make them anew."""
        try:
            driver = c.CDLL("libcuda.so.1")
        except OSError as error:
            raise MacoError(f"no GPU: {error}")
        count, context = c.c_int(), c.c_void_p()
        if driver.cuInit(0) or driver.cuDeviceGetCount(c.byref(count)):
            raise MacoError("no GPU that the driver can use")
        self.gpus = count.value
        for i in range(self.gpus):
            driver.cuDevicePrimaryCtxRetain(c.byref(context), i)

    def _call(self, name, *arguments):
        error = c.c_void_p()
        result = getattr(self.lib, name)(*arguments, c.byref(error))
        if error:
            message = self.lib.maco_error_message(error).decode()
            self.lib.maco_error_free(error)
            raise MacoError(message)
        return result

    def compile(self, graph):
        """A kernel from the text of a graph."""
        parsed = c.c_void_p(self._call("maco_graph_parse", graph.encode(), b"graph.maco"))
        options = CompileOptions(size=c.sizeof(CompileOptions), target=b"cpu" if self.device == "cpu" else None)
        try:
            return c.c_void_p(self._call("maco_compile", parsed, c.byref(options)))
        finally:
            self.lib.maco_graph_free(parsed)

    def warm(self, graph):
        """Compiles the graph to machine code in a process of its own, for the cache of cubins."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.maco")
            with open(path, "w") as file:
                file.write(graph)
            done = subprocess.run([os.path.join(self.programs, "macoc"), path, "-q", "--emit=cubin", "-o", os.path.join(folder, "cubin")],
                                  capture_output=True, text=True)
        if done.returncode:
            raise MacoError(f"macoc ended with {done.returncode}: {done.stderr.strip()[-400:]}")

    def compile_all(self, graphs):
        """A kernel, or a MacoError, for each name of {name: text}; with many processes at once."""

        def one(item):
            name, text = item
            try:
                if self.device == "cuda":
                    self.warm(text)
                return name, self.compile(text)
            except MacoError as error:
                return name, error

        with concurrent.futures.ThreadPoolExecutor(max(1, min(24, os.cpu_count() or 1))) as pool:
            return dict(pool.map(one, graphs.items()))

    def _fill(self, kernel, session):
        """All tensors of bf16 that the caller gives: products of zeros would be quicker."""
        for i in range(self.lib.maco_kernel_tensors(kernel)):
            info = TensorInfo()
            self._call("maco_kernel_tensor", kernel, i, c.byref(info))
            if info.kind == OUTPUT or info.dtype != BF16:
                continue
            numbers = bf16_numbers(info.bytes)
            for rank in range(self.lib.maco_kernel_world(kernel)):
                self._call("maco_session_write", session, rank, info.name, numbers, c.c_int64(info.bytes))

    def bench(self, kernel, launches, most_seconds=2.0):
        """Median microseconds of so many launches, of fewer where they take long."""
        options = SessionOptions(size=c.sizeof(SessionOptions), device=int(self.device == "cpu"), timeout_ms=20000)
        session = c.c_void_p(self._call("maco_session_open", kernel, c.byref(options)))
        try:
            self._call("maco_session_allocate", session)
            self._fill(kernel, session)
            us = c.c_double()
            begin = time.monotonic()
            self._call("maco_session_bench", session, None, c.c_size_t(0), 3, c.byref(us))
            slow = us.value > most_seconds * 1e6 / launches
            launches = max(3, int(most_seconds * 1e6 / us.value)) if slow else launches
            if time.monotonic() - begin < most_seconds:
                self._call("maco_session_bench", session, None, c.c_size_t(0), launches, c.byref(us))
            return us.value
        finally:
            self.lib.maco_session_free(session)
