#!/usr/bin/env python3
"""What ptxas makes of products on tensor cores: none is serialised (its notes C75xx are all that tells), and alone they hardly spill.

  ptxas_test.py --macoc build/bin/macoc

A layer of the prompt and a product with its epilogue for sm_90a, where kernels have wgmma; a decoder for one GPU, which spills nothing, and
one for two; the decode layer for sm_80 and sm_120, where they have mma. A kernel that is known to be serialised must be found out. Status
77: there is no nvcc.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRAPHS = os.path.join(ROOT, "examples", "graphs")
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("bench", "e2e")]
import decode  # noqa: E402
from kept import identity, kept  # noqa: E402
SERIALISED = re.compile(r"\(C75\d\d\)[^\n]*")
SPILLS = re.compile(r"Function properties for maco_kernel\s+\d+ bytes stack frame, (\d+) bytes spill stores")
ALL_SPILLS = re.compile(r"(\d+) bytes spill stores")  # of each function
LAUNCHED = re.compile(r"Function properties for maco_kernel\s+[^\n]*\s+ptxas info    : Used 168 registers")
MOST_SPILLED = 256  # bytes of a thread, by the kernel itself
MOST_BY_ALL = 320  # with the functions that it calls
PRODUCT = """graph product {
  input x : bf16[512, 2048]
  param w : bf16[4096, 2048]
  param r : bf16[512, 4096]
  h = matmul(x, w, transpose_b = true, activation = silu)
  output y = add(h, r)
}
"""
LONE = """graph lone {
  input x : bf16[1, 4096]
  param w : bf16[4096, 4096]
  output y = matmul(x, w, transpose_b = true)
}
"""
PAIR = """graph pair {
  input x : bf16[200, 520]
  param wg : bf16[1000, 520]
  param wu : bf16[1000, 520]
  g = matmul(x, wg, transpose_b = true)
  u = matmul(x, wu, transpose_b = true)
  output y = swiglu(g, u)
}
"""
# The first matmul has few tiles, which consumers send as they store them; the second has many, which other warps send.
SENT = """graph sent(world = 2) {
  input x : bf16[256, 4096]
  input z : bf16[2048, 1024]
  param w : bf16[8192, 4096]
  param v : bf16[8192, 1024]
  p = matmul(x, w, transpose_b = true)
  output y = allreduce(p)
  q = matmul(z, v, transpose_b = true)
  output r = reduce_scatter(q)
}
"""
EIGHT = """graph eight {
  input x : f8e4m3[512, 2048]
  param w : f8e4m3[4096, 2048]
  output y = matmul(x, w, transpose_b = true, dtype = bf16)
}
"""
ATTENTION = """graph attend {
  input q : bf16[256, 256]
  input k : bf16[256, 64]
  input v : bf16[256, 64]
  output y = attention(q, k, v, head_dim = 64, causal = true)
}
"""
# Code of attention twice: what one keeps registers for while the other runs shows here.
ATTENTIONS = ATTENTION.replace("output y =", "z =").replace("\n}", "\n  output y = attention(z, k, v, head_dim = 64, causal = false)\n}")

WINDOWS = ATTENTION.replace("causal = true", "causal = true, window = 100, softcap = 50")
LONG_HEADS = ATTENTION.replace("64]", "256]").replace("256, 256]", "256, 1024]").replace("head_dim = 64", "head_dim = 256")
MOST_SPILLED_OF_LONG = 512  # outside of the loop
MOST_BY_SUMS = 16  # an argmax, once a token; with 216, most in sums, one took 4 % longer


def read(name):
    with open(os.path.join(GRAPHS, name), encoding="utf-8") as file:
        return file.read()


class Compiler:
    def __init__(self, macoc, nvcc, folder):
        self.macoc, self.nvcc, self.folder = macoc, nvcc, folder

    def run(self, text, target, edit=lambda source: source):
        """(PTX, what ptxas says) of the graph's kernel; kept (kept.py) until kernel or compiler change."""
        path = lambda name: os.path.join(self.folder, name)
        with open(path("graph.maco"), "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([self.macoc, path("graph.maco"), "--target", target, "-o", path("kernel.cu")], check=True)
        with open(path("kernel.cu"), encoding="utf-8") as file:
            source = edit(file.read())
        with open(path("kernel.cu"), "w", encoding="utf-8") as file:
            file.write(source)
        ptxas = os.path.join(os.path.dirname(os.path.realpath(self.nvcc)), "ptxas")
        return kept(["ptxas", identity(self.nvcc), identity(ptxas), target, source], lambda: self.compile(target, path, ptxas))

    def compile(self, target, path, ptxas):
        nvcc = subprocess.run([self.nvcc, f"-arch={target}", "-ptx", path("kernel.cu"), "-o", path("kernel.ptx")], capture_output=True,
                              text=True, check=True)
        done = subprocess.run([ptxas, f"-arch={target}", "-v", path("kernel.ptx"), "-o", path("kernel.cubin")], capture_output=True,
                              text=True, check=True)
        with open(path("kernel.ptx"), encoding="utf-8") as file:
            return [file.read(), nvcc.stderr + done.stdout + done.stderr]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    args = parser.parse_args()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("skipped: there is no nvcc")
        return 77
    layer = read("llama32_1b_prefill.maco").replace("0..16", "0..1").replace("x_16", "x_1")
    # What a loop over short tasks keeps in local memory it waits for after each.
    two_layers = lambda text: text.replace("0..16", "0..2").replace("x_16", "x_2")
    decoder = two_layers(read("llama32_1b_decode.maco"))
    parallel = two_layers(decode.graph("llama-3.2-1b", 1024, 2))
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(args.macoc, nvcc, folder)
        always = (("a layer of a prompt", layer, "sm_90a", "wgmma.mma_async", None),
                  ("a decode layer", read("decode_layer.maco"), "sm_80", "mma.sync", None),
                  ("a decode layer", read("decode_layer.maco"), "sm_120", "mma.sync", None))
        others = (("decoding", decoder, "sm_90a", "mma.sync", 0),
                  ("a product", PRODUCT, "sm_90a", "wgmma.mma_async", MOST_SPILLED),
                  ("a pair, K no whole blocks", PAIR, "sm_90a", "wgmma.mma_async", MOST_SPILLED),
                  ("a product of 8 bits", EIGHT, "sm_90a", "e4m3.e4m3", MOST_SPILLED),
                  ("a product of 8 bits", EIGHT, "sm_89", "e4m3.e4m3", MOST_SPILLED),
                  ("two attentions", ATTENTIONS, "sm_90a", "wgmma.mma_async", MOST_SPILLED),
                  ("attention in a window, capped", WINDOWS, "sm_90a", "wgmma.mma_async", MOST_SPILLED),
                  ("attention in a window, capped", WINDOWS, "sm_80", "mma.sync", MOST_SPILLED),
                  ("attention of long heads", LONG_HEADS, "sm_90a", "n256k16", MOST_SPILLED_OF_LONG),
                  ("tiles that are sent", SENT, "sm_90a", "wgmma.mma_async", MOST_SPILLED),
                  ("tiles that are sent", SENT, "sm_80", "mma.sync", MOST_SPILLED),
                  ("decoding over two GPUs", parallel, "sm_90a", "mma.sync", 0))
        by_all = {MOST_SPILLED: MOST_BY_ALL, "decoding over two GPUs": MOST_BY_SUMS}
        for name, text, target, instruction, spilled in (*always, *others):
            ptx, said = compiler.run(text, target)
            spills, total = int(SPILLS.search(said)[1]), sum(map(int, ALL_SPILLS.findall(said)))
            print(f"{name}, {target}: {ptx.count(instruction)} x {instruction}, {total} bytes of a thread spilled, {spills} by the kernel")
            notes = SERIALISED.findall(said) + re.findall(r"[^\n]*warning[^\n]*", said)
            problems += [f"{name}, {target}: {note}" for note in notes]
            # What roles divide is what the kernel is launched with: all that ptxas may give, or consumers would wait for more for ever.
            if "setmaxnreg" in ptx and not LAUNCHED.search(said):
                problems.append(f"{name}, {target}: roles divide registers, but it isn't launched with 168")
            if instruction not in ptx:
                problems.append(f"{name}, {target}: no {instruction}")
            if spilled is not None and spills > spilled:
                problems.append(f"{name}, {target}: {spills} bytes spilled by the kernel, more than {spilled}")
            most = by_all.get(name, by_all.get(spilled, spilled))
            if most is not None and total > most:
                problems.append(f"{name}, {target}: {total} bytes spilled, more than {most}")
        # Stamps want room in shared memory, too, also where no task is prepared and the ring leaves none.
        stamped = lambda source: "#define MACO_PROFILE 1\n" + source
        for target in ("sm_90a", "sm_80"):
            compiler.run(LONE, target, stamped)
        notes = SERIALISED.findall(compiler.run(layer, "sm_90a", stamped)[1])
        problems += [f"a layer of a prompt, with stamps: {note}" for note in notes]
        # Asynchronous products in a function of their own can't stay so.
        apart = lambda source: source.replace("#define MACO_DIVIDES_REGISTERS\n", "").replace(
            "MACO_FN void attention_tile(", "MACO_OP void attention_tile(")
        if not SERIALISED.search(compiler.run(ATTENTIONS, "sm_90a", apart)[1]):
            problems.append("a kernel that is serialised wasn't found out")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
