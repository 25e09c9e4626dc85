"""The C API as _native declares it, against maco_c.h; finding the library; imports; forks; Ctrl-C."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import maco
from conftest import child_environment
from maco import _native


def declarations(header):
    text = re.sub(r"//[^\n]*", "", header)
    for found in re.finditer(r"MACO_API\s+([^;]*?)\b(maco_\w+)\(([^;]*)\);", text):
        arguments = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"* \1", found.group(3))  # a pointer to a function is one
        arguments = [a.strip() for a in arguments.replace("\n", " ").split(",")]
        yield found.group(2), found.group(1).strip(), [] if arguments == ["void"] else arguments


# Of the header, but not used by this package yet.
@pytest.fixture
def header(checkout):
    """That of the library which is tested, else the checkout's."""
    beside = Path(_native.library_path()).parent.parent / "include/maco/maco_c.h"
    return beside if beside.is_file() else checkout / "runtime/include/maco/maco_c.h"


def test_every_function_of_the_header_is_declared(header):
    declared = {name: (result, arguments) for name, result, arguments in declarations(header.read_text())}
    assert len(declared) > 25
    assert set(_native.FUNCTIONS) - set(declared) == set()
    assert set(declared) - set(_native.FUNCTIONS) == set()
    declared = {name: declared[name] for name in _native.FUNCTIONS}
    for name, (result, arguments) in declared.items():
        own_result, own = _native.FUNCTIONS[name]
        assert len(own) == len(arguments), name
        if result in ("maco_code", "int"):
            assert own_result is ctypes.c_int, name
        elif result == "const char*":
            assert own_result is ctypes.c_char_p, name
        elif result == "size_t":
            assert own_result is ctypes.c_size_t, name
        elif result == "void":
            assert own_result is None, name
        else:
            assert own_result is ctypes.c_void_p, name
        for argument, kind in zip(arguments, own, strict=True):
            if argument.startswith("int64_t"):
                assert kind is ctypes.c_int64, name
            elif argument.startswith("size_t"):
                assert kind is ctypes.c_size_t, name
            elif re.match(r"(int|maco_dtype) \w+$", argument):
                assert kind is ctypes.c_int, name
            else:
                assert ctypes.sizeof(kind) == ctypes.sizeof(ctypes.c_void_p), name


def test_structs_have_the_layout_of_the_header(header, tmp_path):
    lines = []
    for name, struct in _native.STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));' for field in struct._fields_]
    (tmp_path / "t.c").write_text(
        "\n".join(["#include <stdio.h>", "#include <stddef.h>", "#include <maco/maco_c.h>", "int main(void) {", *lines, "}"])
    )
    try:
        subprocess.run(["cc", "-I", header.parent.parent, "-o", tmp_path / "t", tmp_path / "t.c"], check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    printed = dict(
        line.split() for line in subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True).stdout.splitlines()
    )
    own = {}
    for name, struct in _native.STRUCTS.items():
        own[name] = str(ctypes.sizeof(struct))
        own.update({f"{name}.{field[0]}": str(getattr(struct, field[0]).offset) for field in struct._fields_})
    extensible = {name for name, struct in _native.STRUCTS.items() if struct._fields_[0][0] == "size"}
    for name in extensible:  # a newer header may have more at the end
        assert int(own.pop(name)) <= int(printed.pop(name))
    assert own == printed
    named = set(re.findall(r"^\} (maco_\w+);", header.read_text(), re.M))
    enums = {"maco_code", "maco_dtype", "maco_kind", "maco_device", "maco_severity"}
    assert named - enums == set(_native.STRUCTS)


def test_enums_have_the_numbers_of_the_header(header):
    header = header.read_text()
    codes = dict(re.findall(r"MACO_(\w+) = (\d)", header))
    assert {name: int(number) for name, number in codes.items() if name != "OK"} == {c.name: c.value for c in maco.ErrorCode}
    types = re.search(r"typedef enum \{([^}]*)\} maco_dtype;", header).group(1)
    assert re.findall(r"MACO_(\w+)", types) == [t.name.upper() for t in maco.DType]
    kinds = re.search(r"typedef enum \{([^}]*)\} maco_kind;", header).group(1)
    assert re.findall(r"MACO_(\w+)", kinds) == [k.upper() for k in _native.KINDS]
    devices = re.search(r"typedef enum \{([^}]*)\} maco_device;", header).group(1)
    assert {name.lower(): i for i, name in enumerate(re.findall(r"MACO_(\w+)", devices))} == _native.DEVICES


def test_version():
    assert re.match(r"\d+\.\d+\.\d+", _native.version())
    assert os.path.exists(_native.library_path())


def test_import_takes_no_torch_no_numpy_and_no_library(python):
    ran = python(
        "import sys, maco\n"
        "print([m for m in ('torch', 'numpy', 'ml_dtypes', 'typing_extensions') if m in sys.modules])\n"
        "print(maco._native._library.dll)"
    )
    assert ran.stdout.split("\n")[:2] == ["[]", "None"], ran.stderr


def test_a_missing_library_says_what_to_do(python, tmp_path):
    text = "import maco\ng = maco.Graph('g')\ng.output('y', g.relu(g.input('x', 'f32', [4])))\nprint(g.text())\ng.check()"
    ran = python(text, env={"MACO_LIBRARY": str(tmp_path)})
    assert "output y = relu(x)" in ran.stdout
    assert ran.stderr.splitlines()[-1].startswith("maco.errors.Unavailable: libmaco.so can't be loaded: ")
    assert "set MACO_LIBRARY" in ran.stderr.splitlines()[-1]
    (tmp_path / "libmaco.so").write_text("no library")
    ran = python(text, env={"MACO_LIBRARY": str(tmp_path / "libmaco.so")})
    assert "Unavailable" in ran.stderr.splitlines()[-1] and str(tmp_path) in ran.stderr.splitlines()[-1]


def test_a_package_of_another_distribution_says_so(tmp_path):
    """Its library needs another that isn't there."""
    folder = tmp_path / "maco" / "_lib"
    shutil.copytree(Path(maco.__file__).parent, tmp_path / "maco", ignore=shutil.ignore_patterns("_lib", "_bin", "_include", "__pycache__"))
    folder.mkdir()
    (tmp_path / "empty.cpp").write_text("")
    build = ["c++", "-shared", "-fPIC", str(tmp_path / "empty.cpp"), "-o"]
    gone = tmp_path / "libgone.so"
    subprocess.run([*build, str(gone)], check=True)
    subprocess.run([*build, str(folder / "libmaco.so.0.1"), "-Wl,--no-as-needed", str(gone)], check=True)
    gone.unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("MACO_LIBRARY", None)
    text = "import maco; maco.Graph('g').check()"
    ran = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "libgone.so" in ran.stderr and "the package was made for another distribution" in ran.stderr, ran.stderr


def test_a_string_with_a_zero_is_refused():
    with pytest.raises(maco.Error, match="has a 0 in it"):
        maco.Graph.parse("graph g {\0}")


FORK = """
import os, sys, gc
import maco
g = maco.Graph("g")
g.output("y", g.relu(g.input("x", "f32", [4])))
k = g.compile(target="cpu")
s = maco.Session(k)
s.allocate()
s.run()
pid = os.fork()
if pid == 0:
    try:
        for call in (s.run, g.check, lambda: g.compile(target="cpu"), lambda: k.source, s.close):
            try:
                call()
                done = "nothing"
            except maco.Error as error:
                done = type(error).__name__ + (" spawn" if "'spawn'" in str(error) else "")
            print(done, flush=True)
        del s, k, g, call
        gc.collect()
    finally:
        sys.exit(0)  # finalizers run
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
s.run()
s.close()
print("parent works")
"""


def test_a_forked_child_is_refused_and_hurts_nobody(python):
    ran = python(FORK)
    assert ran.stdout.splitlines() == ["Error spawn"] * 4 + ["nothing", "parent works"], ran.stdout + ran.stderr
    assert ran.returncode == 0


SPAWN = """
import multiprocessing, sys
import maco

def work(graph):
    s = maco.Session(graph.compile(target="cpu"))
    s.allocate()
    s.run()
    return graph.name

if __name__ == "__main__":
    g = maco.Graph("sent")
    g.output("y", g.relu(g.input("x", "f32", [4])))
    work(g)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(work, (g,)))
"""


def test_spawn_works(tmp_path):
    (tmp_path / "spawned.py").write_text(SPAWN)
    ran = subprocess.run(
        [sys.executable, tmp_path / "spawned.py"], capture_output=True, text=True, timeout=120, env=child_environment(), check=False
    )
    assert ran.stdout.strip() == "sent", ran.stderr


INTERRUPTED = """
import threading, time
import maco

def graph(rows):
    g = maco.Graph("long")
    a = g.input("a", "f32", [rows, rows])
    b = g.input("b", "f32", [rows, rows])
    y = a
    for _ in range(200):
        y = g.matmul(y, b)
    g.output("y", y)
    return g

long = maco.Session(graph(2048).compile(target="cpu"))
long.allocate()
short = maco.Session(graph(8).compile(target="cpu"))
short.allocate()

def tell():
    while not long._handle._uses:  # until the call has begun
        time.sleep(0.01)
    time.sleep(0.2)
    print("waiting", flush=True)

threading.Thread(target=tell).start()
try:
    CALL
    print("ended too soon")
except KeyboardInterrupt:
    print("interrupted", flush=True)
long.read("y")
short.run()
print("others work", flush=True)
END
"""


@pytest.mark.parametrize("call", ["long.run()", "long.bench(3)", "long.launch()"])
@pytest.mark.parametrize("end", ["", "long.close(); del long"])
def test_ctrl_c_ends_a_wait(call, end):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("CALL", call).replace("END", end)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    try:
        assert process.stdout.readline() == "waiting\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out.splitlines() == ["interrupted", "others work"], out + err
    assert process.returncode == 0, err


def test_ctrl_c_in_a_compilation():
    text = """
import maco, threading
g = maco.Graph("g")
y = g.input("x", "f32", [64, 64])
for i in range(3000):
    y = g.relu(y, name=f"r{i}") if i % 2 else g.softmax(y)
g.output("y", y)
g.check()
try:
    print("compiling", flush=True)
    g.compile(target="cpu")
    print("ended too soon")
except KeyboardInterrupt:
    print("interrupted", flush=True)
g = maco.Graph("g")
g.output("y", g.relu(g.input("x", "f32", [4])))
print(g.compile(target="cpu").name)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    try:
        assert process.stdout.readline() == "compiling\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert out.splitlines() == ["interrupted", "g"], out + err
    assert process.returncode == 0


def test_interruptible_gives_results_and_errors_and_reuses_its_thread():
    before = threading.active_count()
    names = {_native.interruptible(lambda: threading.current_thread().name) for _ in range(5)}
    assert names == {"maco-call"}
    assert threading.active_count() <= before + 1
    ended = []
    with pytest.raises(ZeroDivisionError):
        _native.interruptible(lambda: 1 // 0, last=lambda: ended.append(1))
    assert ended == [1]
    seen = []
    other = threading.Thread(target=lambda: seen.append(_native.interruptible(lambda: threading.current_thread())))
    other.start()
    other.join()
    assert seen == [other]  # directly


def test_ctrl_c_right_behind_the_end_of_a_wait_breaks_nothing(monkeypatch):
    """The signal comes when the call has ended and its lock is taken: nobody waits for that again."""

    class Late:
        def __init__(self, lock):
            self.lock, self.raised = lock, False

        def release(self):
            self.lock.release()

        def acquire(self, timeout):
            taken = self.lock.acquire(timeout=timeout)
            if taken and not self.raised:
                self.raised = True
                raise KeyboardInterrupt
            return taken

    begin = _native._Job.__init__

    def job(self, *arguments):
        begin(self, *arguments)
        self.ended = Late(self.ended)

    monkeypatch.setattr(_native._Job, "__init__", job)
    monkeypatch.setattr(_native, "_STOP_SECONDS", 2)
    broken = []
    with pytest.raises(KeyboardInterrupt):
        _native.interruptible(lambda: 5, stop=lambda: None, interrupted=lambda: broken.append(1))
    assert not broken


def test_what_an_abandoned_call_gives_is_disposed_of():
    gate, disposed = threading.Event(), []
    done = threading.Event()

    def late():
        gate.wait(10)
        return "late"

    def interrupt(_signal, _frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            _native.interruptible(late, dispose=lambda r: (disposed.append(r), done.set()))
    finally:
        signal.signal(signal.SIGALRM, old)
    assert disposed == []
    gate.set()
    assert done.wait(10)
    assert disposed == ["late"]
    assert _native.interruptible(lambda: 3) == 3


def test_what_a_signals_handler_raises_stops_a_launch_too():
    g = maco.Graph("long")
    a = g.input("a", "f32", [1024, 1024])
    y = a
    for _ in range(100):
        y = g.matmul(y, a)
    g.output("y", y)
    s = maco.Session(g.compile(target="cpu"))
    s.allocate()

    def late(_signal, _frame):
        raise TimeoutError("mine")

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError, match="mine"):
            for _ in range(1000):
                s.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    s.write("a", pytest.importorskip("numpy").zeros((1024, 1024), "float32"))
    s.close()


LEAKS = """
import gc, os
import maco

def open_files():
    return len(os.listdir("/proc/self/fd"))

def threads():
    return len(os.listdir("/proc/self/task"))

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

g = maco.Graph("big", 2)
g.output("y", g.allreduce(g.input("x", "f32", [1024, 256])))
kernel = g.compile(target="cpu")

def sessions(i):
    s = maco.Session(kernel)
    s.allocate()
    s.run()
    if i % 2:
        s.close()

def kernels(i):
    g = maco.Graph("g")
    x = g.input("x", "f32", [64, 64])
    for _ in range(20):
        x = g.softmax(x)
        g.check()
    g.output("y", x)
    g.compile(target="cpu").source

for i in range(60):
    USE(i)
gc.collect()
before = open_files(), threads()
memory = resident()
for i in range(100):
    USE(i)
gc.collect()
print(before == (open_files(), threads()), (resident() - memory) >> 20)
"""


@pytest.mark.parametrize("use", ["sessions", "kernels"])
def test_a_hundred_leak_nothing(python, use):
    ran = python(LEAKS.replace("USE", use))
    same, megabytes = ran.stdout.split()
    assert same == "True", ran.stdout
    # A session has more than 4 MB of its own here, a kernel's source 300 KB; the rest is the allocator's.
    assert int(megabytes) < 20


def test_cudas_libraries_of_packages_are_taken_before_a_toolkits(tmp_path, python):
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    library = folder / "libnccl.so.2"
    made = subprocess.run(["c++", "-shared", "-x", "c", "/dev/null", "-o", library, "-Wl,-soname,libnccl.so.2"], check=False)
    if made.returncode:
        pytest.skip("no C++ compiler")
    text = """
import ctypes, sys
from maco import _native
sys.path.append(sys.argv[1])
_native.prefer_packages()
ctypes.CDLL("libnccl.so.2")
print([line.split()[-1] for line in open("/proc/self/maps") if "libnccl" in line][:1])
"""
    ran = python(text, args=[str(tmp_path)])
    assert str(folder) in ran.stdout, ran.stdout + ran.stderr
    ran = python(text, args=[str(tmp_path)], env={"MACO_NCCL": "elsewhere"})
    assert str(folder) not in ran.stdout
