#!/usr/bin/env python3
"""What maco-run says of inputs, of states that a kernel spoils, and of a kernel.cu whose comment lines were edited.

  run_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

STATE = """graph t {
  dim n <= 64
  input x : f32[n, 8]
  state s : f32[n, 8]
  s = add(s, x)
  output y = copy(s)
}
"""
ADD = """graph t(world = 2) {
  input  x : f32[4, 8]
  output y = add(x, value = 1)
}
"""


def write_safetensors(path, names):
    header = {name: {"dtype": "F32", "shape": [4, 8], "data_offsets": [128 * i, 128 * (i + 1)]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(128 * len(names)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    failures = 0

    def run(text, *options):
        return subprocess.run([args.maco_run, "-", "--device", "cpu", "--check", *options], input=text, capture_output=True, text=True)

    def kernel(graph):
        return subprocess.run([args.macoc, "-", "--target", "cpu"], input=graph, capture_output=True, text=True, check=True).stdout

    def expect(what, ran, status, *said):
        nonlocal failures
        missing = [s for s in said if s not in ran.stderr]
        print(f"{what}: status {ran.returncode}")
        if ran.returncode != status or missing:
            failures += 1
            print(f"  expected {status} and {missing}\n{ran.stderr}")
        return ran.stderr

    def edited(text, old, new, count=1):
        if text.count(old) < 1:
            sys.exit(f"the kernel has no '{old}'")
        return text.replace(old, new, count)

    # Rows of a state beyond the dim's actual value: first seen to be left alone.
    state = kernel(STATE)
    expect("a state of actual rows", run(state, "--dim", "n=3", "--launches", "2"), 0, "'s'")
    spoiled = edited(state, "using rows = Value<0>;", "using rows = Const<64>;")
    expect("a state written beyond them", run(spoiled, "--dim", "n=3"), 3, "'s' on rank 0: rows beyond the actual shape were written",
           "was edited")

    # Tensors of any rank's file that the graph doesn't know.
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "0.st"), ["x", "both"])
        write_safetensors(os.path.join(folder, "1.st"), ["x", "both", "other"])
        said = expect("unknown tensors", run(ADD, "--inputs", os.path.join(folder, "{rank}.st")), 0, "state 'both'", "state 'other'")
        if said.count("'both'") != 1:
            failures += 1
            print(f"  each name should be told once:\n{said}")

    # tests/unit/manifest_edit_test.cpp has all edits; here is what the tool makes of them.
    add = kernel(ADD)
    for old, new, key in [('"world":2', '"world":4', "'world'"), ('"ctas":8', '"ctas":100000', "'ctas'"),
                          ('"dtype":"f32"', '"dtype":"f16"', "'tensors'"),
                          ('"max_elements":32', '"max_elements":31', "'tensors'"), ('"sums"', '"sum"', "'sums'")]:
        expect(f"{old} becomes {new}", run(edited(add, old, new)), 1, key)
    line = next(line for line in add.splitlines(keepends=True) if '{"name":"x"' in line)
    expect("without tensor x", run(edited(add, line, "")), 1, "'tensors'")
    renamed = "".join(line.replace("input  x", "input  xx").replace("add(x,", "add(xx,") if line.startswith('//@maco   "') else line
                      for line in add.splitlines(keepends=True))
    expect("x renamed in the graph", run(renamed), 1, "'x'")
    expect("another graph of the same tensors", run(edited(add, "value = 1)", "value = 2)")), 3, "was edited")

    # Regions are those of the Program that the kernel was made of, or none.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.program")
        program = subprocess.run([args.macoc, "-", "--target", "cpu", "--emit=program"], input=ADD, capture_output=True, text=True,
                                 check=True).stdout
        with open(path, "w") as file:
            file.write(program)
        expect("--check-access of a kernel", run(add, "--check-access"), 0, "'y'")
        expect("with its Program", run(add, "--check-access", "--program", path), 0, "'y'")
        expect("a Program in vain", run(add, "--program", path), 2, "compiled already", "--check-access")
        other = edited(add, '"program_hash":"', '"program_hash":"f')
        expect("of another Program than the graph's", run(other, "--check-access"), 1, "made of another Program", "give it with --program")
        expect("the same without regions", run(other), 0, "was edited")
        with open(path, "w") as file:
            file.write(edited(program, "read x[0:", "read x[1:"))
        expect("with another Program", run(add, "--check-access", "--program", path), 1, "is not the Program that")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
