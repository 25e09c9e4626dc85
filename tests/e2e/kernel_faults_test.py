#!/usr/bin/env python3
"""What a user's kernel does wrong on the CPU target ends a run with status 4 that names rank and op, however its ranks and tasks run; what
it touches beyond its tensors and regions is seen.

   kernel_faults_test.py --maco-run PATH --macoc PATH [--seed N] [--clang PATH]

1. Faults (wild indices, a division by zero, an assert, recursion and loops without an end) of one thread of one block of rank 1.
2. Random accesses at places that data decides: of every width and kind, before, in and behind a tensor and its block's region.
Status 77 (skipped) where MACO was built without Clang."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import tempfile

FAULTS = {
    "wild store": ("y[(long long)mode << 40] = 1;", "crashed (segmentation fault)"),
    "wild load": ("y[i] = x[-((long long)mode << 40)];", "crashed (segmentation fault)"),
    "null": ("*(volatile float*)(long long)(mode - 3) = 1;", "crashed (segmentation fault)"),
    "division": ("volatile int zero = mode - 4; y[i] = 7 / zero;", "crashed (arithmetic error, as an integer division by zero)"),
    "assert": ("assert(mode != 5);", "crashed (aborted, as by an assert that fails)"),
    "loop": ("for (volatile int on = mode; on;) {}", "doesn't end: none of its threads has ended for 3 s"),
    "loop that reads": (
        "while (*(volatile const float*)x < 1e30f) __nanosleep(100);",
        "doesn't end: none of its threads has ended for 3 s",
    ),
    "recursion": ("y[i] = deep(x, mode);", "crashed (segmentation fault)"),
    "behind the end": ("y[256] = 1;", "'y' on rank 1, which has 256"),
    "before the begin": ("y[9 - mode] = 1;", "'y' on rank 1, which has 256"),
}
FAULTS_CU = """#include <cassert>
__device__ __noinline__ float deep(const float* x, int n) {
  volatile float own[64];
  own[n & 63] = x[n & 63];
  return n < 0 ? own[1] : deep(x, n + 1 - (n >> 30)) + own[n & 63];
}
__global__ void k(const float* x, float* y, int mode, int rank) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = 2 * x[i];
  while (mode == 99 && rank == 1 && blockIdx.x == 2) __syncthreads();
  if (rank != 1 || i != 67) return;
  switch (mode) {
%s    default: break;
  }
}
"""
FAULTS_GRAPH = """graph faults(world = 2) {
  scalar mode in [0, 100)
  input x : f32[256]
  output y : f32[256] = cuda(x, source = "faults.cu", kernel = k, grid = [4], block = [64], args = [x, y, mode, rank],
    reads = {x: [[64 * bx, 64 * bx + 64]]}, writes = {y: [[64 * bx, 64 * bx + 64]]})
  output z = allreduce(y)
}
"""
MEETS = 99  # threads that meet for ever

# Kinds of accesses at `p`, a char pointer: how many bytes, code that writes the float `v`, and code that reads into `v`.
KINDS = {
    "float": (4, "*(float*)p = v;", "v += *(const float*)p;"),
    "float2": (8, "*(float2*)p = make_float2(v, v);", "v += ((const float2*)p)->y;"),
    "float4": (16, "*reinterpret_cast<float4*>(p) = make_float4(v, v, v, v);", "float4 w = *reinterpret_cast<const float4*>(p); v += w.w;"),
    "int4": (16, "reinterpret_cast<int4*>(p)[0] = make_int4(1, 2, 3, 4);", "int4 w = ((const int4*)p)[0]; v += w.x;"),
    "half2": (4, "*(__half2*)p = __float2half2_rn(v);", "v += __low2float(*(const __half2*)p);"),
    "short": (2, "*(short*)p = 3;", "v += *(const short*)p;"),
    "byte": (1, "*(char*)p = 3;", "v += *(const char*)p;"),
    "struct": (32, "Pair two = {}; *(Pair*)p = two;", "Pair two = *(const Pair*)p; v += two.a.x + two.b.w;"),
    "memcpy": (12, "float w[3] = {v, v, v}; memcpy(p, w, 12);", "float w[3]; memcpy(w, p, 12); v += w[2];"),
    "memset": (24, "memset(p, 0, 24);", None),
    "atomicAdd": (4, "atomicAdd((float*)p, v);", None),
    "atomicSub": (4, "atomicSub((unsigned*)p, 5u);", None),
    "atomicMax": (4, "atomicMax((int*)p, 3);", None),
    "atomicCAS": (8, "atomicCAS((unsigned long long*)p, *(unsigned long long*)p, 2ull);", None),
    "__ldg": (4, None, "v += __ldg((const float*)p);"),
    "__ldg4": (16, None, "v += __ldg((const float4*)p).z;"),
    "member": (4, "((float4*)(p - 8))->z = v;", "v += ((const float4*)(p - 8))->z;"),
}
ACCESSES = [(name, size, writes) for name, (size, store, load) in KINDS.items() for writes in (True, False) if (store if writes else load)]
DATA_CU = """#include <cuda_fp16.h>
struct Pair { float4 a, b; };
__global__ void k(const float* x, float* y, int kind, const int* at) {
  float v = threadIdx.x + 1;
  if (blockIdx.x != 1) return;
  char* p = (char*)y + at[0];
  switch (kind) {
%s    default: break;
  }
  // The result isn't needed, but the loads are.
  if (v == 12345.5f) y[64] = v;
}
"""
DATA_GRAPH = """graph data {
  scalar kind in [0, 100)
  input x : f32[256]
  input at : i32[4]
  state y : f32[256]
  y = cuda(x, at, y, source = "data.cu", kernel = k, grid = [4], block = [1], args = [x, y, kind, at],
    reads = {y: [[64 * bx, 64 * bx + 64]], x: [[64 * bx, 64 * bx + 64]]}, writes = {y: [[64 * bx, 64 * bx + 64]]})
}
"""
# Between ops, behind and before other temporaries: what block 1 writes there is found, too.
BETWEEN_CU = """__global__ void k(const float* x, float* y, const int* at) {
  y[64 * blockIdx.x + threadIdx.x] = x[64 * blockIdx.x + threadIdx.x];
  if (blockIdx.x == 1 && threadIdx.x == 0) ((char*)y)[at[0]] = 3;
}
"""
BETWEEN_GRAPH = """graph between(world = 2) {
  input x : f32[4, 64]
  input at : i32[4]
  output y : f32[4, 64]
  h = silu(x)
  first = cuda(h, at, source = "between.cu", kernel = k, grid = [4], block = [64], args = [h, first, at],
    types = {first: {dtype: f32, shape: [4, 64]}})
  sum = allreduce(first)
  second = cuda(sum, at, source = "between.cu", kernel = k, grid = [4], block = [64], args = [sum, second, at],
    types = {second: {dtype: f32, shape: [4, 64]}})
  m = mul(second, first)
  y = add(m, h)
}
"""
BEGIN, END, ALL = 256, 512, 1024  # bytes of block 1's region, and of the tensor


class Tests:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.environment = dict(os.environ)
        if args.clang:
            self.environment["MACO_CLANG"] = args.clang

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def run(self, *command):
        try:
            ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=200, env=self.environment)
        except subprocess.TimeoutExpired:
            return None, "no end within 200 s"
        return ran.returncode, ran.stdout + ran.stderr

    def compile(self, name, graph, sms):
        """Once, so that Clang doesn't read the source for each run."""
        status, said = self.run(self.args.macoc, self.write(f"{name}.maco", graph), "--target=cpu", f"--sms={sms}",
                                "-o", self.folder / f"{name}.kernel.cu")
        if status != 0:
            raise RuntimeError(said)

    def fault(self, case):
        """Checks that the run ends with status 4, and that its message names rank 1, the op and the fault."""
        mode, options, words = case
        status, said = self.run(self.args.maco_run, self.folder / "faults.kernel.cu", "--device=cpu", "--timeout=3",
                                f"--scalar=mode={mode}", *options)
        wanted = [words, "rank 1: op '"] if words else []
        right = status == (4 if words else 0) and all(w in said for w in wanted)
        return "" if right else f"mode {mode}, {' '.join(options)}: status {status}, wanted {wanted}:\n{said[-800:]}"

    def faults(self):
        cases = ""
        for number, (code, _) in enumerate(FAULTS.values()):
            cases += f"    case {number + 1}: {{ {code} break; }}\n"
        self.write("faults.cu", FAULTS_CU % cases)
        self.compile("faults", FAULTS_GRAPH, 2)
        ways = [[], ["--check"], ["--replay=5"], ["--jitter=3"], ["--processes"], ["--check-access"], ["--check-access", "--replay=2"]]
        # What these compile, the others find in the cache.
        warm = [told for told in (self.fault((0, way, "")) for way in (["--check"], ["--check-access"])) if told]
        work = [(0, way, "") for way in ways]
        for number, (name, (_, words)) in enumerate(FAULTS.items()):
            chosen = ways if name in ("wild store", "loop") else random.Random(number).sample(ways, 2)
            work += [(number + 1, way, words) for way in chosen]
        work += [(MEETS, way, "doesn't end: none of its threads has ended for 3 s") for way in ([], ["--replay=1"])]
        return [(lambda told: told, told) for told in warm] + [(self.fault, case) for case in work]

    def at_data(self, case):
        number, at, mode = case
        name, size, writes = ACCESSES[number]
        # Vectors that aren't aligned are a fault of their own.
        inputs = self.folder / f"{number}_{at}_{len(mode)}.safetensors"  # whoever runs beside it has one of its own
        header = b'{"at":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}}'
        inputs.write_bytes(len(header).to_bytes(8, "little") + header + at.to_bytes(4, "little", signed=True) + bytes(12))
        status, said = self.run(self.args.maco_run, self.folder / "data.kernel.cu", "--device=cpu", f"--scalar=kind={number}",
                                f"--inputs={inputs}", *mode)
        in_region = BEGIN <= at and at + size <= END
        in_tensor = 0 <= at and at + size <= ALL
        checked = "--check-access" in mode
        bad = not (in_region if checked else in_tensor)
        told = f"{name}, {'write' if writes else 'read'} of {size} bytes at {at}, {' '.join(mode)}: status {status}\n{said[-600:]}"
        if bad and checked:
            verb = "writes" if writes else "reads"
            right = status == 4 and (f"cuda 'y' tile 1 {verb} element" in said or name.startswith("atomic")) and "of 'y' on rank 0" in said
            return "" if right else told
        if bad and writes:
            return "" if status == 4 and "rank 0: op 'y'" in said and "of 'y' on rank 0, which has 256" in said else told
        return "" if status == 0 or (bad and status == 4) else told

    def at_between(self, case):
        at, mode = case
        inputs = self.folder / f"between_{at}_{len(mode)}.safetensors"
        header = b'{"at":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}}'
        inputs.write_bytes(len(header).to_bytes(8, "little") + header + at.to_bytes(4, "little", signed=True) + bytes(12))
        status, said = self.run(self.args.maco_run, self.folder / "between.kernel.cu", "--device=cpu", f"--inputs={inputs}", *mode)
        if 0 <= at < ALL:
            right = status == 0
        else:
            place = f"element {at // 4} of 'first' on rank "
            right = status == 4 and place in said and ", which has 256" in said
        return "" if right else f"between, at {at}, {' '.join(mode)}: status {status}\n{said[-600:]}"

    def only_on_gpus(self, case):
        """A kernel.cu of what the CPU target lacks: status 4, and which word it is."""
        name, code, words = case
        self.write(f"{name}.cu", f"__global__ void k(float* y) {{ unsigned n = 1; {code} y[threadIdx.x] = n; }}\n")
        graph = self.write(f"{name}.maco", f'graph g {{\n  output y : f32[32] = cuda(source = "{name}.cu", kernel = k, grid = [1], '
                           "block = [32], args = [y])\n}\n")
        kernel = self.folder / f"{name}.gpu.cu"
        status, said = self.run(self.args.macoc, graph, "-q", "-o", kernel)
        if status == 0:
            status, said = self.run(self.args.maco_run, kernel, "--device=cpu")
            if status == 4 and f"uses {words}, which the CPU target doesn't have: run it on a GPU" in said:
                return ""
        return f"{name}: status {status}\n{said[-600:]}"

    def between(self, choose):
        self.write("between.cu", BETWEEN_CU)
        self.compile("between", BETWEEN_GRAPH, 4)
        places = [0, ALL - 1, ALL, -1, ALL + 2047, -2048, choose.randrange(ALL, ALL + 2048), choose.randrange(-2048, 0)]
        return [(self.at_between, (at, mode)) for at in places for mode in ([], ["--replay=2"])]

    def data(self, choose):
        cases = ""
        for number, (name, _, writes) in enumerate(ACCESSES):
            cases += f"    case {number}: {{ {KINDS[name][1 if writes else 2]} break; }}\n"
        self.write("data.cu", DATA_CU % cases)
        self.compile("data", DATA_GRAPH, 1)
        work = []
        for number, (_, size, writes) in enumerate(ACCESSES):
            align = min(size & -size, 16)
            # In the region, at both ends of it and of the tensor, far away, anywhere.
            places = [choose.choice([BEGIN, END - size]), choose.choice([END, END + align - size]), BEGIN - align,
                      choose.choice([ALL, ALL + align - size]), choose.choice([-align, ALL + 4096, -4096, 10**6, -10**6, 5 * 10**7]),
                      choose.randrange(-200, ALL + 200)]
            for at in places:
                at = at // align * align
                work.append((self.at_data, (number, at, ["--check-access"])))
                if writes and (at < 0 or at + size > ALL):
                    work.append((self.at_data, (number, at, [])))
        return work


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--clang", help="libmaco_clang.so, where the programs don't find it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults, data, between or gpus")
    args = parser.parse_args()
    choose = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(args, folder)
        probe = tests.write("probe.cu", "__global__ void k(float* y) { y[threadIdx.x] = 1; }\n")
        graph = tests.write("probe.maco", f'graph probe {{\n  output y : f32[32] = cuda(source = "{probe.name}", kernel = k, grid = [1], '
                            "block = [32], args = [y])\n}\n")
        if "needs Clang" in tests.run(args.macoc, graph, "--emit=graph", "-o", os.devnull)[1]:
            print("not tested here: MACO was built without Clang")
            return 77
        work = []
        if args.only in ("", "faults"):
            work += tests.faults()
        if args.only in ("", "data"):
            work += tests.data(choose)
        if args.only in ("", "between"):
            work += tests.between(choose)
        if args.only in ("", "gpus"):
            work += [(tests.only_on_gpus, ("ptx", 'asm("mov.u32 %0, 5;" : "=r"(n));', "inline PTX")),
                     (tests.only_on_gpus, ("word", "n += __cvta_generic_to_global(y) == 0;", "'__cvta_generic_to_global'"))]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [told for told in pool.map(lambda item: item[0](item[1]), work) if told]
    for told in wrong:
        print(told)
    print(f"{len(work)} runs, {len(wrong)} failures")
    return 1 if wrong or not work else 0


if __name__ == "__main__":
    sys.exit(main())
