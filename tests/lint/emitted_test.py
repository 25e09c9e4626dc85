#!/usr/bin/env python3
"""What macoc writes is laid out as Clang's formatter does it: formatting it once more changes nothing.

  emitted_test.py --macoc build/bin/macoc

Headers of runtime/device are looked at by format_test.py; this looks at what is generated from graphs, and at kernels of users.
Status 77 (skipped) if there is no clang-format in the version of tools/requirements.txt.
"""
import argparse
import concurrent.futures
import difflib
import glob
import os
import subprocess
import sys
import tempfile

from sources import ROOT, find_tool


STYLE = f"--style=file:{ROOT}/.clang-format"
MARKS = ("// -------- kernels of the user's --------\n", "// ======== generated from the graph ========\n")
JOBS = 2
GRAPHS = ["tests/e2e/all_ops.maco", "tests/e2e/attentions.maco", "tests/e2e/products_f8.maco", "tests/e2e/products_behind.maco",
          "examples/graphs/qwen3_8b_decode.maco", "examples/graphs/residual_norms.maco", "examples/graphs/tp_mlp.maco"]
# Names, expressions and lists that are too long for a line.
LONG = """graph long {{
  dim n <= 8
  scalar a in [0, 101)
  scalar b in [0, 101)
  input x : f32[n, 64]
  {sums}
  output y = silu({name}23)
  state cache : f32[64, 64]
  cache = kv_append(cache, x, at = ({begin}) % 32)
}}
"""


def long_graph():
    name = "a_very_long_name_of_a_tensor_that_is_summed_with_many_others_of_the_same_shape"
    sums = "\n  ".join(f"{name}{i} = {'mul' if i % 2 == 0 else 'add'}({f'{name}{i - 1}' if i else 'x'}, x)" for i in range(24))
    return LONG.format(sums=sums, name=name, begin=" + ".join(f"a / {i} * b" for i in range(3, 20)))


def problems(clang_format, macoc, graph, target):
    ran = subprocess.run([macoc, graph, "--target", target, "-o", "-"], capture_output=True, text=True, check=False,
                         cwd=os.path.dirname(graph))
    if ran.returncode != 0:
        return [f"{graph} for {target}: status {ran.returncode}: {ran.stderr.strip().splitlines()[:1]}"]
    at = min(ran.stdout.index(mark) for mark in MARKS if mark in ran.stdout)
    text = ran.stdout[at:]
    formatted = subprocess.run([clang_format, STYLE, "--assume-filename=kernel.cu"], input=text, capture_output=True, text=True,
                               check=True).stdout
    difference = difflib.unified_diff(text.splitlines(), formatted.splitlines(), lineterm="", n=0)
    changes = [line for line in difference if line[:3] not in ("---", "+++")]
    return [f"{os.path.basename(graph)} for {target}:"] + ["  " + line for line in changes[:12]] if changes else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--cuda", action="store_true", help="also graphs with users' kernels, which need a macoc with Clang")
    args = parser.parse_args()
    clang_format, why = find_tool("clang-format")
    if not clang_format:
        print(f"SKIPPED: {why}")
        return 77
    macoc = os.path.abspath(args.macoc)
    graphs = [f"{ROOT}/{name}" for name in GRAPHS]
    runs = [(graph, "sm_90a") for graph in graphs] + [(graphs[0], "cpu")]
    if args.cuda:
        runs += [(graph, "sm_90a") for graph in sorted(glob.glob(f"{ROOT}/tests/cuda/kernels/*.maco"))[::3]]
    with tempfile.TemporaryDirectory() as folder:
        graph = os.path.join(folder, "long.maco")
        with open(graph, "w", encoding="utf-8") as file:
            file.write(long_graph())
        runs.append((graph, "cpu"))
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            found = list(pool.map(lambda run: problems(clang_format, macoc, *run), runs))
    for lines in found:
        print("\n".join(lines), end="\n" if lines else "")
    wrong = sum(bool(lines) for lines in found)
    print(f"{len(found)} kernels, {wrong} laid out in another way")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
