#!/usr/bin/env python3
"""Users' CUDA kernels as tasks (tests/cuda): those that must run are run on the CPU target, against the original kernels and their regions;
those that can't be tasks are refused where the first line of their graph says.

   cuda_test.py --maco-run PATH --macoc PATH [--only NAME] [--jobs N] [--each]
   cuda_test.py --macoc PATH --write DIR     the kernels that must run, as kernel.cu for GPUs: where there is Clang
   cuda_test.py --maco-run PATH --run DIR    runs and checks those on a GPU: where there need be none

Status 77 (skipped) where MACO was built without Clang."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
ROOT = pathlib.Path(__file__).resolve().parents[1] / "cuda"


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)


def runs(args, graph):
    """Equal to the reference, under another order of tasks also within its regions: one of the two, with --each both; the same text again
    through all passes."""
    alone = "(a GPU only)" in graph.read_text().splitlines()[0]
    orders = [[], ["--check-access", "--replay=7"]]
    turn = sum(map(ord, graph.stem))
    if not args.each:
        orders = [orders[turn % 2]]
    for options in [] if alone else orders:
        ran = run(args.maco_run, graph, "--device=cpu", "--check", *options)
        if ran.returncode != 0:
            return f"{' '.join(options)}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    # For GPUs of several kinds, in turns.
    target = ("sm_90a", "sm_80", "sm_120", "sm_90a")[turn % 4]
    cubin = run(args.macoc, graph, f"--target={target}", "--emit=cubin", "--reparse", "--verify=each", "-o", os.devnull)
    if cubin.returncode != 0 and "NVRTC was not found" not in cubin.stderr:
        return f"{target}: status {cubin.returncode}\n{cubin.stderr}"
    # Every other kernel is also compiled with nvcc, if there is one: it has other headers than NVRTC.
    if turn % 2 or not NVCC:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        kernel = pathlib.Path(folder, "kernel.cu")
        run(args.macoc, graph, "-o", kernel)
        made = run(NVCC, "-arch=sm_90a", "--expt-relaxed-constexpr", "-cubin", kernel, "-o", os.devnull)
    return "" if made.returncode == 0 else f"nvcc: {made.stderr}"


def deep(args, kernel):
    """An expression of very many terms, which trees are as deep as."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "deep.cu").write_text("__global__ void k(int* y) { y[threadIdx.x] = 1" + "+1" * 20000 + "; }\n")
        graph = pathlib.Path(folder, "deep.maco")
        graph.write_text('graph deep {\n  output y : i32[32] = cuda(source = "deep.cu", kernel = k,\n'
                         '    grid = [1], block = [32], args = [y])\n}\n')
        made = run(args.macoc, graph, "-o", os.devnull)
    return "" if made.returncode == 0 else f"{kernel}: status {made.returncode}\n{made.stderr[:2000]}"


def bytes_of_any_kind(args, kernel):
    """Comments in another encoding than UTF-8 and with NUL; a literal keeps its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "bytes.cu").write_bytes(
            b"// caf\xe9 \x80\xff\n/* \xc3\x28 \xef\xbb\xbf \xc3\xa9 */\n__constant__ char name[] = \"\xe9\xc3\xa9\";\n"
            b"__global__ void k(int* y) { // \x00 here }\n  y[threadIdx.x] = (unsigned char)name[threadIdx.x & 3];\x00\n}\n// \xe9")
        graph = pathlib.Path(folder, "bytes.maco")
        graph.write_text('graph bytes {\n  output y : i32[32] = cuda(source = "bytes.cu", kernel = k,\n'
                         '    grid = [1], block = [32], args = [y])\n}\n')
        return runs(args, graph)


def error_first(args, kernel):
    """What NVRTC alone refuses is said without warnings of MACO's own names."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "range.cu").write_text(
            "__global__ void k(int* y) {\n  switch (threadIdx.x) {\n    case 0 ... 3: y[threadIdx.x] = 1; break;\n"
            "    default: y[threadIdx.x] = 2;\n  }\n}\n")
        graph = pathlib.Path(folder, "range.maco")
        graph.write_text('graph range {\n  output y : i32[32] = cuda(source = "range.cu", kernel = k,\n'
                         '    grid = [1], block = [32], args = [y])\n}\n')
        made = run(args.macoc, graph, "--emit=cubin", "-o", os.devnull)
    if "NVRTC was not found" in made.stderr:
        return ""
    right = made.returncode == 4 and "case 0 ... 3" in made.stderr and "warning" not in made.stderr
    return "" if right else f"{kernel}: status {made.returncode}\n{made.stderr[:2000]}"


def spelt(args, graph):
    """JSON and DSL are the same graph."""
    texts = [run(args.macoc, graph.with_suffix(suffix), "--emit=dsl").stdout for suffix in (".json", ".maco")]
    return "" if texts[0] and texts[0] == texts[1] else f"{texts[0]}\n{texts[1]}"


def compiled(args, graph):
    made = run(args.macoc, graph, "-o", os.devnull)
    return "" if made.returncode == 0 else f"status {made.returncode}\n{made.stderr}"


def begun(args, source):
    """macoc's graph for a kernel is a graph."""
    made = run(args.macoc, source)
    if made.returncode != 0:
        return f"status {made.returncode}\n{made.stderr}"
    read = subprocess.run([str(args.macoc), "-", "-o", os.devnull], input=made.stdout, capture_output=True, text=True, timeout=300)
    return "" if read.returncode == 0 else f"{made.stdout}{read.stderr}"


def refused(args, graph):
    """The first error is the one that the graph's first line expects: file, line and words."""
    first = graph.read_text().splitlines()[0]
    expected = re.match(r"# expect: ([^:]+):(\d+): (.*)", first)
    if not expected:
        return "its first line expects nothing"
    for_cpu = " (target: cpu)"
    target = ["--target=cpu"] if first.endswith(for_cpu) else []
    made = run(args.macoc, graph, *target, "-o", os.devnull)
    if made.returncode != 1:
        return f"status {made.returncode}, not 1\n{made.stderr}"
    found = re.search(r"([^/:\n]+):(\d+):\d+: error: (.*)", made.stderr)
    words = expected[3].removesuffix(for_cpu)
    if not found or (found[1], found[2]) != (expected[1], expected[2]) or found[3].replace(str(ROOT) + "/refused/", "") != words:
        return f"expected {expected[0]}\n{made.stderr}"
    return ""


def warned(args, graph):
    """The only warning is the one that the graph's first line says."""
    first = graph.read_text().splitlines()[0]
    made = run(args.macoc, graph, "-o", os.devnull)
    if made.returncode != 0:
        return f"status {made.returncode}\n{made.stderr}"
    found = [f"{f}:{line}: {text}" for f, line, text in re.findall(r"([^/:\n]+):(\d+):\d+: warning: (.*)", made.stderr)]
    expected = [] if first == "# warns of nothing" else [first.removeprefix("# warns: ")]
    return "" if found == expected else f"expected {expected}, found {found}"


def write(args, graph):
    """The graph's kernel.cu in the folder, for so few SMs that two ranks find room on a GPU."""
    made = run(args.macoc, graph, "--sms=60", "-o", args.write / f"{graph.parent.name}-{graph.stem}.cu")
    return "" if made.returncode == 0 else f"status {made.returncode}\n{made.stderr}"


def runs_on_gpu(args, kernel):
    """Equal to the reference; a kernel with PTX of its own runs only, since no host could compile its original."""
    check = [] if "asm" in kernel.name else ["--check"]
    ranks = re.search(r'"world": *(\d+)', kernel.read_text()[:4000])
    ran = run(args.maco_run, kernel, "--device=cuda", *check, "--launches=3", "--ranks-per-gpu", ranks[1] if ranks else 1)
    return "" if ran.returncode == 0 else f"status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--maco-run")
    parser.add_argument("--macoc")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--run", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="run each kernel in both ways; without, each in one")
    args = parser.parse_args()
    good = [graph for folder in ("kernels", "accepted") for graph in sorted((ROOT / folder).glob("*.maco"))]
    if args.write:
        args.write.mkdir(parents=True, exist_ok=True)
        return finish(args, [(write, graph) for graph in good])
    if args.run:
        return finish(args, [(runs_on_gpu, kernel) for kernel in sorted(args.run.glob("*.cu"))])
    probe = run(args.macoc, ROOT / "kernels" / "saxpy_t.maco", "--emit=graph", "-o", os.devnull)
    if "needs Clang" in probe.stderr:
        print("not tested here: MACO was built without Clang")
        return 77
    work = [(runs, graph) for graph in good]
    work += [(runs, graph) for graph in sorted((ROOT / "kernels").glob("*.json"))]
    work += [(spelt, ROOT / "kernels" / "saxpy_t.json"), (deep, ROOT / "keys" / "deep"), (bytes_of_any_kind, ROOT / "keys" / "bytes"),
             (error_first, ROOT / "keys" / "range")]
    work += [(begun, ROOT / "kernels" / name) for name in ("row_sum.cu", "saxpy_t.cu", "gather_rows.cu", "softmax.cu", "histogram.cu",
                                                             "bitonic.cu", "tiled_product.cu")]
    work += [(compiled, ROOT.parent / "bench" / "kernels.maco")]
    work += [(refused, graph) for graph in sorted((ROOT / "refused").glob("*.maco"))]
    work += [(warned, graph) for graph in sorted((ROOT / "warned").glob("*.maco"))]
    return finish(args, work)


def finish(args, work):
    work = [(test, graph) for test, graph in work if args.only in f"{graph.parent.name}/{graph.name}"]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (_, graph), wrong in zip(work, pool.map(lambda item: item[0](args, item[1]), work)):
            if wrong:
                failed += 1
                print(f"{graph.parent.name}/{graph.name}: {wrong}")
    print(f"{len(work) - failed} passed, {failed} failed, 0 skipped: {len(work) - failed} of {len(work)} as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
