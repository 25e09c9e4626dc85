#!/usr/bin/env python3
"""Declared regions that are one element too small are reported: task, tensor and element; intact ones are not.

  access_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run

The proofs rest on the regions that tasks declare. `maco-run --check-access` checks each access of a run against them; here the Program of
a graph is changed as text, one region at a time, so that each device function, for each kind of op that uses it, is seen to report what it
reads and what it writes beyond its region, and what it leaves out. Which these are comes from the Programs: all_ops.maco has every op
(nvrtc_archs.py compares it with the registry), and what has no control fails.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Whose regions follow from their calls' parameters: a Program with others is refused before it runs.
EXCHANGES = {"put", "combine", "combine_finished", "take", "hop", "clear"}
GRAPHS = ["tests/e2e/all_ops.maco", "examples/graphs/residual_norms.maco", "examples/graphs/decode_layer.maco",
          "examples/graphs/phases_roles.maco"]
REGION = re.compile(r'("[^"]*"|[\w.#]+)\[(\d+):(\d+), (\d+):(\d+)([^\]]*)\]')


def tasks(program):
    """(start, end, call, tile, text) of each task."""
    for match in re.finditer(r"^  task \S+ (\w+)#(\d+) ([^\n]*)", program, re.M):
        yield match.start(3), match[1], int(match[2]), match[3]


CLAUSES = {"read": "read", "write": "(?:write|may)", "more": "write"}
VERBS = {"read": "reads", "write": "writes", "more": "does not write"}
SIZES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2}


def calls(program):
    """By call: (function, kind of op)."""
    call = r"^  call (\w+) = (\w+(?: with [\w, ]+)?) op=(?:\"[^\"]*\"|\S+) kind=(\w+)"
    return {m[1]: (m[2], m[3]) for m in re.finditer(call, program, re.M)}


def functions(program):
    """All (what, function, kind of op) such that some task of that function and kind reads, or writes."""
    of = calls(program)
    return {(what, *of[call]) for _, call, _, text in tasks(program) for what in ("read", "write")
            if REGION.search("".join(re.findall(rf"\b{CLAUSES[what]} ([^;\n]*)", text)))}


def variants(program, what):
    """For each function, kind of op and operand Programs in which the region of one task that reads or writes it is one element smaller
    (`what`: read, write), or one element larger than what it must write (`what`: more). Of packets, which are written and read as a whole,
    it is a packet. Yields (function, kind, tile, tensor, element, changed Program)."""
    done = set()
    of = calls(program)
    buffers = {m[1]: (m[2], int(m[3]), m[4]) for m in
               re.finditer(r"^  buffer (\"[^\"]*\"|\S+) : (\w+)\[[^\]]* x (\d+)\]([^\n]*)", program, re.M)}
    for start, call, tile, text in tasks(program):
        for clause in re.finditer(rf"\b{CLAUSES[what]} ([^;\n]*)", text):
            for i, match in enumerate(REGION.finditer(clause[1])):
                name, r0, r1, c0, c1, rest = match[1], *map(int, match.group(2, 3, 4, 5)), match[6]
                dtype, columns, kind_of_buffer = buffers[name]
                # Seen with another pitch an element has another column.
                seen_otherwise = "pitch" in rest
                step = 4 // SIZES[dtype] if " packets" in kind_of_buffer else 1
                if (of[call], i) in done:
                    continue
                if what == "more":
                    if "slot" in kind_of_buffer or seen_otherwise or "block" in rest or c1 >= columns:
                        continue
                    c1, element = c1 + 1, f"column {c1})"
                elif c1 - c0 > step:
                    c1 = (c1 - 1) // step * step
                    element = f"column {c1})"
                elif r1 - r0 > 1:
                    r1, element = r1 - 1, "column "
                else:
                    continue
                done.add((of[call], i))
                at = start + clause.start(1) + match.start()
                changed = f"{name}[{r0}:{r1}, {c0}:{c1}{rest}]"
                yield (*of[call], tile, name.strip('"'), "column " if seen_otherwise else element,
                       program[:at] + changed + program[at + len(match[0]) :])
# Where without them nothing would be there to read: at first a cache is empty.
SCALARS = {"examples/graphs/decode_layer.maco": ["--scalar", "pos=300"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    failures, cases, wanted, seen = [], 0, set(), set()
    with tempfile.TemporaryDirectory() as folder:

        def run(graph, program, number):
            path = os.path.join(folder, f"{number}.program")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            ran = subprocess.run([args.maco_run, graph, "--device", "cpu", "--target", "cpu", "--check-access", "--replay", "1",
                                  "--program", path, *SCALARS.get(os.path.relpath(graph, ROOT), [])],
                                 capture_output=True, text=True)
            return ran.returncode, ran.stdout + ran.stderr

        for name in GRAPHS:
            graph = os.path.join(ROOT, name)
            program = subprocess.run([args.macoc, graph, "--target", "cpu", "--emit=program"], capture_output=True, text=True,
                                     check=True).stdout
            status, said = run(graph, program, os.path.basename(name))
            cases += 1
            if status != 0:
                failures.append(f"{name}: the intact Program: status {status}: {said}")
                continue
            wanted |= functions(program)
            todo = [(what, *variant) for what in VERBS for variant in variants(program, what)]

            def check(case, graph=graph, name=name):
                number, (what, function, kind, tile, tensor, element, changed) = case
                status, said = run(graph, changed, f"{os.path.basename(name)}-{number}")
                # What products send is held to their geometry, too.
                if function in EXCHANGES or (function == "matmul with send" and tensor.endswith(".slots")):
                    good = status == 1 and f"tile {tile} touches other regions than it declares" in said
                else:
                    good = status == 4 and re.search(
                        rf"tile {tile} (\(loader\) )?{VERBS[what]} element \d+ \(row \d+, {re.escape(element)}[^']* of "
                        rf"'{re.escape(tensor)}' on rank", said)
                told = (f"{name}: {function} of {kind}, tile {tile}, {what} of '{tensor}', {element.rstrip(')')}: "
                        f"status {status}: {said.strip()}")
                return told, good, (what, function, kind)

            numbered = list(enumerate(todo))
            with ThreadPoolExecutor(2) as pool:
                for told, good, control in pool.map(check, numbered):
                    cases += 1
                    if good:
                        seen.add(control)
                        if args.verbose:
                            print(told)
                    else:
                        failures.append(told)
    for what, function, kind in sorted(wanted - seen):
        failures.append(f"no control of what {function} of {kind} {VERBS[what]}: no region that is an element too small was reported")
    for failure in failures:
        print(failure)
    for what in VERBS:
        print(f"{what}: {', '.join(sorted(f'{function} of {kind}' for w, function, kind in seen if w == what))}")
    print(f"{cases} runs, {len(seen & wanted)} of {len(wanted)} functions by what they read and write, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
