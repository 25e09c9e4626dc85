#!/usr/bin/env python3
"""How many kernels of a folder of CUDA files MACO takes: each kernel is read, its graph to begin with compiled as it is, and what comes of
that given to NVRTC and nvcc. Prints a line for each step and the reasons, most frequent first.

   kernel_survey.py FOLDER... [--macoc PATH] [-I DIR]... [-D NAME=VALUE]... [--steps read,graph,nvrtc,nvcc] [--jobs N] [--part K/N]
                    [--json FILE] [--keep FOLDER]

With --keep each kernel.cu that macoc writes is left in a folder; where there is a toolkit,
   kernel_survey.py --compile FOLDER [--jobs N]
gives what lies in one to NVRTC, as MACO's runtime does, and to nvcc.

A kernel that asks for what no task can have (docs/cuda-kernels.md: textures, the grid's barrier, printf, structs as arguments, ...) is
counted apart: those are named by BEYOND, by what MACO says of them."""

import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What docs/cuda-kernels.md says that a task can't have, as MACO says it.
BEYOND = (
    "textures aren't tensors", "surfaces aren't tensors", "a task can't print", "would end every task", "the grid can't be waited for",
    "clusters of blocks", "launches no others", "launches nothing", "a task's memory is that of", "frees nothing",
    "can't be an argument of a task", "only pointers to tensors and numbers", "what stays between launches is a state",
    "has no initialiser", "memory_async", "can't be had in a task", "inline PTX with", "asks for its thread", "doesn't come along",
    "at most 256 threads", "tiles of several warps", "writes no tensor", "is declared, but not defined", "is overloaded",
)


def said(text):
    """The first error of a program, without names and numbers."""
    for line in text.splitlines():
        if "error: " in line:
            return line.split("error: ", 1)[1]
    lines = text.strip().splitlines()
    return lines[0] if lines else "nothing said"


def plain(reason):
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", reason))[:150]


def nvrtc(path):
    """What NVRTC says of a file, with the options of runtime/host/nvrtc.cpp; "" if it takes it."""
    library = ctypes.CDLL(os.environ.get("MACO_NVRTC", "libnvrtc.so.13"))
    source = path.read_bytes()
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"--device-as-default-execution-space", b"--diag-suppress=177"]
    if b"\n#include <" in source:
        include = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
        options += [f"--include-path={include}".encode(), f"--include-path={include / 'cccl'}".encode()]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None)
    if library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)) == 0:
        return ""
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return said(log.value.decode(errors="replace"))


def nvcc(path):
    program = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    p = subprocess.run([program, "-arch=sm_90a", "--expt-relaxed-constexpr", "-cubin", path, "-o", os.devnull],
                       capture_output=True, text=True, errors="replace", timeout=900)
    return "" if p.returncode == 0 else said(p.stderr)


def compile_kept(folder, jobs):
    files = sorted(pathlib.Path(folder).rglob("*.cu"))
    for name, compiler in (("NVRTC", nvrtc), ("nvcc", nvcc)):
        with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
            refused = [(f, why) for f, why in zip(files, pool.map(compiler, files)) if why]
        print(f"{name} takes {len(files) - len(refused)} of {len(files)} kernels of {folder}")
        for file, why in refused:
            print(f"  {file.name}: {why[:200]}")


class Survey:
    def __init__(self, args):
        self.args = args
        self.options = [f"-I{pathlib.Path(d).resolve()}" for d in args.I] + [f"-D{d}" for d in args.D]
        self.steps = args.steps.split(",")
        self.nvcc = shutil.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if os.path.exists("/usr/local/cuda/bin/nvcc") else None)

    def macoc(self, *command, folder=None):
        try:
            p = subprocess.run([self.args.macoc, *map(str, command)], capture_output=True, text=True, errors="replace", timeout=300,
                               cwd=folder)
            return p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired:
            return None, "", "error: no end within 300 s"

    def kernels(self, path):
        """The names of a file's kernels; those that are only instances of a template once."""
        _, _, err = self.macoc(path, "--kernel", "?", *self.options)
        found = re.search(r"there is no kernel '\?'; '.*' has (.*)", err)
        if found:
            return found[1].split(", "), ""
        return [], "" if " has no kernel" in err else said(err)

    def kernel(self, path, name):
        """How far a kernel comes: its last step that was right, and what was said of the next."""
        rc, graph, err = self.macoc(path, "--kernel", name, *self.options)
        if rc != 0:
            return "", f"status {rc}: {said(err)}" if rc != 1 else said(err)
        if "graph" not in self.steps:
            return "read", ""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "g.maco").write_text(graph)
            # Its source is named as it was given.
            rc, _, err = self.macoc(pathlib.Path(folder, "g.maco"), "-o", pathlib.Path(folder, "k.cu"), folder=folder)
            if rc != 0:
                beyond = re.findall(r"# (.*can't be an argument of a task|The kernel writes no tensor.*)", graph)
                return "read", beyond[0] if beyond else (f"status {rc}: " if rc != 1 else "") + said(err)
            if self.args.keep:
                kept = pathlib.Path(self.args.keep)
                kept.mkdir(parents=True, exist_ok=True)
                label = re.sub(r"[^A-Za-z0-9_]+", "_", f"{path.parent.name}_{path.stem}_{name}")
                shutil.copy(pathlib.Path(folder, "k.cu"), kept / f"{label}.cu")
            if "nvrtc" in self.steps:
                rc, _, err = self.macoc(pathlib.Path(folder, "g.maco"), "--emit=cubin", "-o", os.devnull, folder=folder)
                if rc != 0:
                    return "graph", "NVRTC: " + next((x.split("error: ")[1] for x in err.splitlines() if "): error: " in x), said(err))
            if "nvcc" in self.steps and self.nvcc:
                p = subprocess.run([self.nvcc, "-arch=sm_90a", "--expt-relaxed-constexpr", "-cubin", "k.cu", "-o", os.devnull],
                                   capture_output=True, text=True, cwd=folder, timeout=600)
                if p.returncode != 0:
                    return "nvrtc", "nvcc: " + said(p.stderr)
        return self.steps[-1], ""

    def run(self):
        args = self.args
        files = [f for folder in args.folders for f in sorted(pathlib.Path(folder).resolve().rglob("*.cu"))]
        k, n = map(int, args.part.split("/"))
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            found = list(pool.map(self.kernels, files))
            work = [(f, name) for f, (names, _) in zip(files, found) for name in names]
            work = [w for i, w in enumerate(work) if i % n == k - 1]
            results = list(pool.map(lambda w: self.kernel(*w), work))
        unread = [(str(f), why) for f, (_, why) in zip(files, found) if why]
        beyond = [any(b in why for b in BEYOND) for _, why in results]
        print(f"{len(files)} files, {len(work)} kernels; {sum(beyond)} ask for what no task can have, {len(work) - sum(beyond)} are left")
        for i, step in enumerate(self.steps):
            passed = [bool(s) and self.steps.index(s) >= i for s, _ in results]
            left = sum(p for p, b in zip(passed, beyond) if not b)
            rest = max(1, len(work) - sum(beyond))
            print(f"  {step:6} {sum(passed):4}, of what is left {left:4} ({100 * left / rest:.0f} %)")
        for title, chosen in (("what stopped the others:", False), ("what no task can have:", True)):
            reasons = collections.Counter()
            example = {}
            for (f, name), (step, why), b in zip(work, results, beyond):
                if why and b == chosen:
                    reasons[(step, plain(why))] += 1
                    example.setdefault((step, plain(why)), f"{f.name}: {name}: {why}")
            print(title)
            for key, count in reasons.most_common():
                print(f"  {count:4}  after {key[0] or 'nothing':7} {example[key][:220]}")
        for f, why in unread:
            print(f"  no kernel could be listed: {f}: {why}")
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps([{"file": str(f), "kernel": name, "step": s, "why": why, "beyond": b}
                                                           for (f, name), (s, why), b in zip(work, results, beyond)], indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--macoc", default=str(ROOT / "build/bin/macoc"))
    parser.add_argument("-I", action="append", default=[])
    parser.add_argument("-D", action="append", default=[])
    parser.add_argument("--steps", default="read,graph,nvrtc,nvcc")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="a folder for the kernels that macoc writes")
    parser.add_argument("--compile", help="a folder of kernels that --keep left")
    args = parser.parse_args()
    if bool(args.compile) == bool(args.folders):
        parser.error("give folders of CUDA files, or --compile")
    if args.compile:
        compile_kept(args.compile, args.jobs)
    else:
        Survey(args).run()


if __name__ == "__main__":
    main()
