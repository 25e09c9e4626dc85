"""The command line: `maco info`, models, and the packaged programs as `maco compile`, `maco run` and `maco explain`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence

from . import __version__, _native
from .errors import Error, Unavailable

USAGE = """\
maco info                          what was found on this machine, and what is missing
maco compile GRAPH -o kernel.cu    compiles a task graph (macoc; maco compile --help)
maco run GRAPH --device cpu        compiles, runs and checks one (maco-run; maco run --help)
maco explain GRAPH OP              what became of an op, and why (macoc --explain)
maco trace GRAPH [-o trace.json]   runs it with stamps: a table, and a trace for Perfetto (maco run GRAPH --profile)
maco trace PROGRAM.py [-o FILE] [ARGUMENTS]   the same of all that a Python program runs by MACO
maco generate DIR "text"           what comes behind a prompt, of a checkpoint in a folder (maco generate --help)
maco chat DIR                      answers line by line (maco chat --help)
maco import DIR -o OUT             a checkpoint as task graphs (macoc import; maco import --help)
maco --version
"""

_COMMANDS = ("info", "compile", "run", "explain", "trace", "generate", "chat", "import")

# What macoc --version has a line for, and what to do where it is missing.
_ADVICE = {
    "CUDA driver": "needed to run on GPUs: install NVIDIA's driver, or run with device 'cpu'",
    "NVRTC": "needed to run on GPUs: pip install nvidia-cuda-nvrtc, or set MACO_NVRTC to the library or its folder",
    "NCCL": "needed for algorithm and backend 'nccl': pip install nvidia-nccl-cu13, or set MACO_NCCL to the library or its folder",
    "C++ compiler": "needed to run on the CPU target: install g++, or set MACO_CXX to a compiler",
    "CUDA kernels": "needed for ops 'cuda': a build of MACO with Clang 22",
}
_MISSING = ("no device", "not found", "none", "can't", "no ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line says; gives the exit status: 0 done, 2 the command line is wrong, those of the programs else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    command, rest = words[0], words[1:]
    try:
        if command == "--version":
            print(f"maco {__version__}")
            return 0
        if command == "info":
            return info()
        if command == "compile":
            return _become("macoc", rest)
        if command == "run":
            return _become("maco-run", rest)
        if command == "explain":
            if rest and rest[0] in ("-h", "--help"):
                print("maco explain GRAPH OP [options of maco compile]")
                return 0
            if len(rest) < 2:
                print("maco explain: takes a graph and an op: maco explain GRAPH OP", file=sys.stderr)
                return 2
            return _become("macoc", [rest[0], "--explain", rest[1], *rest[2:]])
        if command == "trace":
            return trace(rest)
        if command == "import":
            return _become("macoc", ["import", *rest])
        if command in ("generate", "chat"):
            from .models import commands

            return commands.generate(rest) if command == "generate" else commands.chat(rest)
    except Error as error:
        print(f"maco {command}: {error}", file=sys.stderr)
        return 4 if isinstance(error, Unavailable) else 1
    import difflib

    near = difflib.get_close_matches(command, _COMMANDS, n=1)
    print(f"maco: unknown command '{command}'" + (f"; did you mean '{near[0]}'?" if near else "; see maco --help"), file=sys.stderr)
    return 2


def _become(name: str, arguments: Sequence[str]) -> int:
    path = os.fspath(_native.program(name))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, [path, *arguments])


def trace(words: Sequence[str]) -> int:
    """Runs a graph, or a Python program, with stamps; gives the exit status."""
    if not words or words[0] in ("-h", "--help"):
        print("maco trace GRAPH [-o trace.json] [options of maco run]\nmaco trace PROGRAM.py [-o trace.json] [arguments of the program]")
        return 0 if words else 2
    rest, file = list(words), "trace.json"
    own = 2 if any(word.endswith(".py") for word in rest[:3]) else len(rest)  # a program has words of its own
    at = next((i for i, word in enumerate(rest[:own]) if word in ("-o", "--output")), None)
    if at is not None:
        if len(rest) < at + 2:
            print("maco trace: -o takes a file", file=sys.stderr)
            return 2
        file = rest[at + 1]
        del rest[at : at + 2]
    if not rest:
        print("maco trace: takes a graph or a Python program: maco trace GRAPH", file=sys.stderr)
        return 2
    what = rest.pop(0)
    if not what.endswith(".py"):
        return _become("maco-run", [what, "--profile", file, *rest])
    if not os.path.isfile(what):
        print(f"maco trace: there is no file '{what}'", file=sys.stderr)
        return 2
    import runpy

    from .profiling import profiler

    sys.argv = [what, *rest]
    sys.path.insert(0, os.path.dirname(os.path.abspath(what)))
    status = 0
    with profiler() as found:
        try:
            runpy.run_path(what, run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    found.print_summary()
    found.export_chrome_trace(file)
    return status


def info() -> int:
    """Prints the versions and places of what MACO uses, and what to do about what is missing. Gives 0, or 4 without a library."""
    rows: list[tuple[str, str]] = []
    advice: list[str] = []
    rows.append(("maco", f"{__version__}, {_native.PACKAGE}"))
    rows.append(("Python", f"{platform.python_version()}, {sys.executable}"))
    status = 0
    try:
        rows.append(("libmaco.so", f"{_native.version()}, {_native.library_path()}"))
    except Unavailable as error:
        rows.append(("libmaco.so", "missing"))
        advice.append(f"libmaco.so: {error}")
        status = 4
    for name in ("macoc", "maco-run", "maco-opt"):
        try:
            rows.append((name, os.fspath(_native.program(name))))
        except Unavailable as error:
            rows.append((name, "missing"))
            advice.append(f"{name}: {error}")
    for key, found in _machine():
        rows.append((key, found))
        if key in _ADVICE and found.startswith(_MISSING):
            advice.append(f"{key}: {_ADVICE[key]}")
    for name in ("torch", "numpy", "ml_dtypes", "tokenizers", "jinja2"):
        rows.append((name, _installed(name)))
    width = max(len(key) for key, _ in rows) + 2
    for key, found in rows:
        print(f"{key:<{width}}{found}")
    if advice:
        print("\nmissing:")
        for line in advice:
            print(f"  {line}")
    return status


def _machine() -> list[tuple[str, str]]:
    """What `macoc --version` found: driver, NVRTC, NCCL, C++ compiler."""
    try:
        ran = subprocess.run([_native.program("macoc"), "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (Unavailable, OSError, subprocess.TimeoutExpired):
        return []
    rows = []
    for line in ran.stdout.splitlines()[1:]:
        key, found = line[:14].strip(), line[14:].strip()
        if key and found:
            rows.append((key, found))
    return rows


def _installed(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
