#!/usr/bin/env python3
"""What MACO finds beside itself, libmaco_clang.so above all, it finds however it is started: by $PATH, by a symbolic link, by a relative
path, from another folder, as a process of --processes, as a library that was opened by a relative name, installed and moved. What is there
but doesn't load is said to be there, with the reason.

   found_test.py --build BUILD
Status 77 (skipped) where MACO was built without Clang."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

KERNEL = """__global__ void scale(const float* x, float* y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  y[i] = 2 * x[i];
}
"""
GRAPH = """graph scaled(world = 2) {
  input x : f32[64]
  output a : f32[64] = cuda(x, source = "scale.cu", kernel = scale, grid = [2], block = [32], args = [x, a])
  output y = allreduce(a)
}
"""
LIBRARY = """import ctypes, os, sys
os.chdir(sys.argv[1])
maco = ctypes.CDLL("./libmaco.so")
os.chdir(sys.argv[2])
maco.maco_graph_parse.restype = maco.maco_compile.restype = ctypes.c_void_p
error = ctypes.c_void_p()
maco.maco_graph_parse.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
maco.maco_compile.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
maco.maco_error_message.restype, maco.maco_error_message.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
graph = maco.maco_graph_parse(open("scaled.maco", "rb").read(), b"scaled.maco", ctypes.byref(error))
kernel = graph and maco.maco_compile(graph, None, ctypes.byref(error))
sys.exit(None if kernel else maco.maco_error_message(error).decode())
"""


def clean(**more):
    return {k: v for k, v in os.environ.items() if k not in ("MACO_CLANG", "MACO_NVRTC")} | {k: str(v) for k, v in more.items()}


class Test:
    def __init__(self, folder):
        self.folder, self.problems = pathlib.Path(folder), []
        (self.folder / "scale.cu").write_text(KERNEL)
        (self.folder / "scaled.maco").write_text(GRAPH)
        (self.folder / "notes.so").write_text("this is no library\n")

    def ends(self, what, command, cwd=None, status=0, says="", **env):
        # The shell finds programs, so that argv[0] is what a user types.
        ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=300, check=False, cwd=cwd or self.folder,
                             env=clean(**env))
        said = ran.stdout + ran.stderr
        if ran.returncode != status or says not in said:
            self.problems.append(f"{what}: {command}: status {ran.returncode}, not {status} with '{says}'\n{said}")

    def programs(self, what, folder):
        """The programs of a folder, started in all ways."""
        by_path = f"{folder}:{os.environ['PATH']}"
        self.ends(f"{what}, by PATH", "macoc scale.cu -o skeleton.maco", PATH=by_path)
        self.ends(f"{what}, by PATH", "macoc scaled.maco -o kernel.cu", PATH=by_path)
        self.ends(f"{what}, by PATH, processes", "maco-run scaled.maco --device cpu --check --processes", PATH=by_path)
        self.ends(f"{what}, from another folder", f"./macoc {self.folder}/scaled.maco -o /dev/null", cwd=folder)
        self.ends(f"{what}, from below", f"../{folder.name}/macoc {self.folder}/scaled.maco -o /dev/null", cwd=folder)
        links = self.folder / f"links of {what}"
        links.mkdir()
        (links / "macoc").symlink_to(folder / "macoc")
        (links / "compiler").symlink_to(links / "macoc")
        self.ends(f"{what}, by a link", f"'{links}/macoc' scaled.maco -o /dev/null")
        self.ends(f"{what}, by a link of another name in PATH", "compiler scaled.maco -o /dev/null", PATH=f"{links}:{os.environ['PATH']}")
        self.ends(f"{what}, called otherwise", f"bash -c 'exec -a nothing {folder}/macoc scaled.maco -o /dev/null'")

    def library(self, what, folder):
        self.ends(f"{what}, the library", f"{sys.executable} -c '{LIBRARY}' {folder} {self.folder}")

    def not_loaded(self, folder):
        macoc, broken, absent = folder / "macoc", self.folder / "notes.so", self.folder / "absent.so"
        self.ends("a reader that is none", f"{macoc} scaled.maco -o /dev/null", status=1,
                  says=f"'{broken}' was found but doesn't load: ", MACO_CLANG=broken)
        self.ends("a reader by its name alone", f"{macoc} scaled.maco -o /dev/null", status=1,
                  says=f"'{broken}' was found but doesn't load: ", MACO_CLANG=broken.name)
        self.ends("a reader that isn't there", f"{macoc} scaled.maco -o /dev/null", status=1,
                  says=f"MACO_CLANG says '{absent}', and there is no such file", MACO_CLANG=absent)
        (self.folder / "plain.maco").write_text("graph plain {\n  input x : f32[8]\n  output y = relu(x)\n}\n")
        self.ends("an NVRTC that is none", f"{macoc} plain.maco --emit=cubin -o /dev/null", status=4,
                  says=f"NVRTC: '{broken}' was found but doesn't load: ", MACO_NVRTC=broken)
        self.ends("an NVRTC that isn't there", f"{macoc} plain.maco --emit=cubin -o /dev/null", status=4,
                  says="NVRTC was not found where MACO_NVRTC says", MACO_NVRTC=absent)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    if not (build / "lib" / "libmaco_clang.so").exists():
        print("skipped: MACO was built without Clang")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        test = Test(os.path.realpath(folder))
        test.programs("built", build / "bin")
        test.library("built", build / "lib")
        test.not_loaded(build / "bin")
        prefix = test.folder / "prefix"
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix)], check=True, capture_output=True)
        moved = test.folder / "moved"
        prefix.rename(moved)
        test.programs("installed", moved / "bin")
        for library in moved.glob("lib*/**/libmaco.so"):
            test.library("installed", library.parent)
    for problem in test.problems:
        print(problem)
    sys.exit(1 if test.problems else 0)


if __name__ == "__main__":
    main()
