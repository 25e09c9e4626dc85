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


MODEL = """graph m(world = 2) {
  input x : f32[4, 8]
  input z : f32[4, 8]
  param w0 : f32[4, 8]
  param w1 : f32[4, 8]
  state s : f32[4, 8]
  s = add(s, x)
  a = add(z, w0)
  b = add(a, w1)
  output y = add(b, s)
}
"""
CHAIN = "graph c {\n" + "".join(f"  param p{i} : f32[4, 8]\n" for i in range(12)) + "  a0 = add(p0, p1)\n" + "".join(
    f"  a{i - 1} = add(a{i - 2}, p{i})\n" for i in range(2, 12)) + "  output y = copy(a10)\n}\n"


def inputs_test(folder, run, expect):
    """Files that leave tensors out, have them twice, or have names that the option refuses."""

    def file(name, tensors):
        write_safetensors(os.path.join(folder, name), tensors)
        return ["--inputs", os.path.join(folder, name)]

    everything = file("all.st", ["x", "z", "w0", "w1"])
    expect("inputs of every tensor", run(MODEL, *everything), 0, "'y'", "not: filled")
    expect("without --inputs random values are what was asked for", run(MODEL), 0, "'y'", "not: filled")
    some = file("some.st", ["x", "w1"])
    text = "1 input and 1 param were filled with random values (seed 7): z, w0\n"
    expect("inputs of some", run(MODEL, *some, "--seed", "7"), 0, text)
    expect("the same in processes", run(MODEL, *some, "--seed", "7", graph=os.path.join(folder, "m.maco"), processes=True), 0, text)
    file("r0.st", ["x", "z", "w0"])
    file("r1.st", ["x", "w0", "w1"])
    by_rank = ["--inputs", os.path.join(folder, "r{rank}.st")]
    text = "(seed 0): z (rank 1), w1 (rank 0)\n"
    expect("some on each rank", run(MODEL, *by_rank), 0, "1 input and 1 param were filled", text)
    expect("the same in processes", run(MODEL, *by_rank, graph=os.path.join(folder, "m.maco"), processes=True), 0, text)
    expect("one input", run(MODEL, *file("one.st", ["x", "w0", "w1"])), 0, "1 input was filled with random values (seed 0): z\n")
    expect("many params", run(CHAIN, *file("few.st", ["p3"])), 0, "11 params were filled", ": p0, p1, p2, p4, p5, p6, p7, p8 and 3 more\n")
    # Required, each that is missing is named, states aren't.
    expect("--require-inputs", run(MODEL, *everything, "--require-inputs"), 0, "'y'")
    expect("required and missing", run(MODEL, *some, "--require-inputs"), 2, "--require-inputs: no file binds input 'z'\n",
           "--require-inputs: no file binds param 'w0'\n", "not: 's'")
    expect("missing on a rank", run(MODEL, *by_rank, "--require-inputs"), 2, "no file binds input 'z' on rank 1\n",
           "no file binds param 'w1' on rank 0\n")
    expect("required without files", run(MODEL, "--require-inputs"), 2, "no file binds input 'x'", "no file binds param 'w1'")
    expect("many missing", run(CHAIN, "--require-inputs", "--max-errors", "3"), 2, "'p2'\nerror: and 9 more inputs and params")
    # Several files.
    expect("two files", run(MODEL, *file("a.st", ["x", "w0"]), *file("b.st", ["z", "w1"]), "--require-inputs"), 0, "'y'")
    a, b = os.path.join(folder, "a.st"), os.path.join(folder, "c.st")
    expect("a tensor in both", run(MODEL, *file("a.st", ["x", "w0"]), *file("c.st", ["z", "x"])), 2,
           f"'x' is in two files of --inputs: '{a}' and '{b}'")
    expect("what the graph doesn't have in both", run(MODEL, *file("d.st", ["x", "n"]), *file("e.st", ["z", "n"])), 0, "state 'n'")
    expect("a name that is near", run(MODEL, *file("f.st", ["x", "z", "w0", "w11"])), 0, "state 'w11'; did you mean 'w1'?")
    expect("a file that isn't there", run(MODEL, *everything, "--inputs", os.path.join(folder, "none.st")), 2, "none.st")
    for option in ("--inputs", "--outputs"):
        expect(f"{option}: another placeholder", run(MODEL, option, os.path.join(folder, "in.{rnak}.st")), 2,
               f"{option}: '{{rnak}}' in '", "is no placeholder; did you mean '{rank}'?")
    # What isn't finite where the reference has it so is no error, and tells nothing of the error.
    special = os.path.join(folder, "special.st")
    with open(special, "wb") as out:
        header = json.dumps({"x": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
        out.write(struct.pack("<Q", len(header)) + header + struct.pack("<32f", *[float("nan"), float("inf"), float("-inf")], *[1.0] * 29))
    for world, says in ((1, "'y': ok, worst error 0 of 1e-05; 3 of 32 are not finite\n"),
                        (3, "'y': ok on 3 ranks, worst error 0 of 1e-05 on rank 0; 9 of 96 are not finite\n")):
        graph = f"graph n(world = {world}) {{\n  input x : f32[4, 8]\n  output y = add(x, value = 1)\n}}\n"
        expect(f"NaN and infinities on {world} ranks", run(graph, "--inputs", special), 0, says)
        expect("the same in processes", run(graph, "--inputs", special, graph=os.path.join(folder, "n.maco"), processes=True), 0, says)
    copy = "graph i(world = 2) {\n  input x : i32[4, 8]\n  output y = copy(x)\n}\n"
    expect("integers", run(copy), 0, "'y': ok on 2 ranks, equal\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    failures = 0

    def run(text, *options, graph="-", processes=False):
        if graph != "-":
            with open(graph, "w") as file:
                file.write(text)
        more = ["--processes"] if processes else []
        command = [args.maco_run, graph, "--device", "cpu", "--check", *more, *options]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def kernel(graph):
        return subprocess.run([args.macoc, "-", "--target", "cpu"], input=graph, capture_output=True, text=True, check=True).stdout

    def expect(what, ran, status, *said):
        nonlocal failures
        missing = [s for s in said if (s[5:] in ran.stderr if s.startswith("not: ") else s not in ran.stderr)]
        print(f"{what}: status {ran.returncode}")
        if ran.returncode != status or missing:
            failures += 1
            print(f"  expected {status} and {missing}\n{ran.stderr}")
        return ran.stderr

    def edited(text, old, new, count=1):
        if text.count(old) < 1:
            sys.exit(f"the kernel has no '{old}'")
        return text.replace(old, new, count)

    # Rows of a state beyond the dim's actual value: the first run leaves them alone, the second writes them.
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

    with tempfile.TemporaryDirectory() as folder:
        inputs_test(folder, run, expect)

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
