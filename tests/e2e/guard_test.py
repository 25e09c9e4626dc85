#!/usr/bin/env python3
"""Whatever a Program's calls say, `maco-run --check-access` ends by itself, and names the task where one is at fault.

  guard_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run

The Programs of small graphs, whose calls get other parameters as text: those below, for which it is known how the run ends, and one value
for each parameter of each call. Such kernels read and write anywhere, or don't end. A run may find nothing (the result is compared with the
reference: other parameters may mean the same), but it must not die by a signal or last.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

GRAPHS = {
    "attention": """
  input  q : bf16[24, 64]
  input  k : bf16[40, 32]
  input  v : bf16[40, 32]
  output y = attention(q, k, v, head_dim = 16, causal = true)
""",
    "softmax": """
  dim rows <= 9
  input  x : f32[rows, 36]
  output y = softmax(x)
""",
    "matmul": """
  input  x : f32[48, 64]
  param  w : bf16[64, 96]
  param  v : bf16[24, 96]
  h = matmul(x, w)
  output y = matmul(h, v, transpose_b = true)
""",
    "cores": """
  input  x : bf16[48, 64]
  param  w : bf16[64, 96]
  output y = matmul(x, w)
""",
    "decode": """
  input  x : bf16[1, 64]
  param  w : bf16[64, 32]
  output y = matmul(x, w)
""",
    "moves": """
  input  x : f32[20, 36]
  output y = transpose(x)
  output z = slice(x, axis = 1, begin = 3, end = 36, step = 3)
""",
    # Ids that the table doesn't have, but for its limit.
    "embedding": """
  param  table : f32[50, 40]
  input  low : i32[12]
  ids = maximum(low, value = 1000000)
  output y = embedding(table, ids)
""",
}
WORLD = {"attention": 2}

# How a run ended.
FOREIGN = r"error: rank \d+, SM \d+: .* tile \d+ (\(loader\) )?(reads|writes) .*, which it does not declare"
MISSING = r"error: rank \d+, SM \d+: .* tile \d+ does not write .*, which it says it does"
NOWHERE = r"error: rank \d+, SM \d+: .* tile \d+ (\(loader\) )?touches memory of no buffer; the run ends here"
CRASHED = r"error: rank \d+, SM \d+: .* tile \d+ (\(loader\) )?crashed \(.*\); the run ends here"
HUNG = r"error: no task has begun or ended for \d+ ms; the run ends here\. Within:\n  rank \d+, SM \d+: .* tile \d+"
STOPPED = r"error: rank \d+: .*op '"  # by an index or a time-out
UNCOMPILED = r"could not compile the kernel for the CPU"
REPORTS = {"hung": HUNG, "crashed": CRASHED, "memory of no buffer": NOWHERE, "foreign access": FOREIGN, "left out": MISSING,
           "stopped": STOPPED, "not compiled": UNCOMPILED}

# (graph, op, {parameter: value}, how the run ends)
KNOWN = [
    ("attention", "y", {"D": "17"}, "memory of no buffer"),
    ("attention", "y", {"D": "8"}, "foreign access"),
    ("attention", "y", {"length": "const 41"}, "memory of no buffer"),
    ("attention", "y", {"HKV": "0"}, "crashed"),
    ("softmax", "y", {"cols": "const 35"}, "crashed"),
    ("softmax", "y", {"cols": "const 32"}, "left out"),
    ("softmax", "y", {"cols": "const 36000", "N": "36000"}, "memory of no buffer"),
    ("matmul", "h", {"K": "65"}, "memory of no buffer"),
    ("matmul", "h", {"K": "32"}, "foreign access"),
    ("matmul", "h", {"N": "0"}, "crashed"),
    ("matmul", "h", {"BN": "32"}, "foreign access"),
    ("matmul", "h", {"transpose_b": "true"}, "foreign access"),
    ("matmul", "y", {"method": "dot"}, "right"),
    ("decode", "y", {"K": "128"}, "memory of no buffer"),
    ("decode", "y", {"K": "32"}, "wrong result"),
    ("decode", "y", {"loads": None}, "refused"),
    ("moves", "y", {"in3": "14720"}, "memory of no buffer"),
    ("moves", "y", {"out0": "0"}, "left out"),
    # 2^32 - 1 elements modulo 2^32: the count of a loop comes round.
    ("moves", "z", {"rows": "const 1171354717", "B0": "1171354717", "in0": "0", "out0": "0"}, "hung"),
    ("moves", "z", {"in_offset": "const 1"}, "foreign access"),
    ("embedding", "y", {}, "stopped"),
    ("embedding", "y", {"limit": "const 2000000000"}, "memory of no buffer"),
]


def call_of(program, op):
    return re.search(rf"^  call \w+ = \w+(?: with [\w, ]+)? op={op} .*$", program, re.M)


def parameters(call):
    """Match objects of all parameters that are integers."""
    return re.finditer(r"(?<= )(\w+)=((?:const )?)(-?\d+)(?= )", call[: call.index("}")].split("epilogue")[0])


def damaged(program, op, values):
    line = call_of(program, op)[0]
    changed = line
    for name, value in values.items():
        pattern = r"(?<=\)) loads .*" if value is None else rf"(?<= ){name}=(const )?\S+"
        assert re.search(pattern, changed), f"no {name} in {line}"
        changed = re.sub(pattern, "" if value is None else f"{name}={value}", changed, count=1)
    return program.replace(line, changed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--seed", type=int, default=1, help="of the values for all parameters")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    choose = random.Random(args.seed)
    failures, ends = [], Counter()
    with tempfile.TemporaryDirectory() as folder:
        programs, cases = {}, []
        for name, body in GRAPHS.items():
            path = os.path.join(folder, f"{name}.maco")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"graph {name}(world = {WORLD.get(name, 1)}) {{{body}}}\n")
            programs[name] = subprocess.run([args.macoc, path, "--target", "cpu", "--emit=program"], capture_output=True, text=True,
                                            check=True).stdout
        # The case that takes longest comes first.
        cases += sorted(KNOWN, key=lambda case: case[3] != "hung")
        chosen = []
        for name, program in programs.items():
            for call in re.finditer(r"^  call \w+ = \w+(?: with [\w, ]+)? op=(\S+) .*$", program, re.M):
                for parameter in parameters(call[0]):
                    n = int(parameter[3])
                    value = choose.choice([v for v in (0, 1, n - 1, n + 1, n // 2, 2 * n, 4 * n + 3, 100000) if v != n])
                    chosen.append((name, call[1], {parameter[1]: f"{parameter[2]}{value}"}, None))
        cases += chosen

        def run(case):
            number, (name, op, values, _) = case
            path = os.path.join(folder, f"{number}.program")
            with open(path, "w", encoding="utf-8") as file:
                file.write(damaged(programs[name], op, values))
            command = [args.maco_run, os.path.join(folder, f"{name}.maco"), "--device", "cpu", "--target", "cpu", "--check-access",
                       "--timeout", "2", "--program", path]
            # The reference refuses such ids.
            command += [] if name == "embedding" else ["--check"]
            command += ["--replay", "1"] if number % 2 else []
            try:
                ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                return "lasts", ""
            said = ran.stdout + ran.stderr
            if ran.returncode == 4:
                return next((end for end, report in REPORTS.items() if re.search(report, said)), "unexplained"), said
            plain = {0: "right", 1: "refused", 3: "wrong result"}
            return plain.get(ran.returncode, f"status {ran.returncode}"), said

        with ThreadPoolExecutor(2) as pool:
            for (name, op, values, expected), (end, said) in zip(cases, pool.map(run, enumerate(cases))):
                ends[end] += 1
                told = (f"{name}: '{op}' with " + (", ".join(f"{k}={v}" for k, v in values.items()) or "nothing else") +
                        f": {end}" + (f" instead of {expected}" if expected not in (None, end) else "") + f": {said.strip()[:600]}")
                known_ends = {"right", "refused", "wrong result", *REPORTS}
                if expected != end if expected else end not in known_ends:
                    failures.append(told)
                elif args.verbose:
                    print(told)
    for failure in failures:
        print(failure)
    print(", ".join(f"{end}: {count}" for end, count in sorted(ends.items())))
    print(f"{sum(ends.values())} runs of damaged Programs, {len(KNOWN)} of them known, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
