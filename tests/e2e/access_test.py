#!/usr/bin/env python3
"""Declared regions that are one element too small are reported: task, tensor and element; intact ones are not.

  access_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run

The proofs rest on the regions that tasks declare. `maco-run --check-access` holds each access of a run against them; here the Program of a graph
is changed as text, one region at a time, so that each kind of op is seen to report what it does beyond its region, and what it leaves out.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRAPHS = ["residual_norms.maco", "decode_layer.maco", "phases_roles.maco"]
REGION = re.compile(r'("[^"]*"|[\w.#]+)\[(\d+):(\d+), (\d+):(\d+)([^\]]*)\]')


def tasks(program):
    """(start, end, call, tile, text) of each task."""
    for match in re.finditer(r"^  task \S+ (\w+)#(\d+) ([^\n]*)", program, re.M):
        yield match.start(3), match[1], int(match[2]), match[3]


def variants(program, what):
    """For each call and operand one Program, in which the region of one task that reads or writes it is one element smaller (`what`: read,
    write), or one element larger than what it must write (`what`: more)."""
    done = set()
    kinds = dict(re.findall(r"^  call (\w+) = (\w+)", program, re.M))
    # Regions of slots may be rounded up.
    widths = {name: int(cols) for name, cols in re.findall(r'^  buffer (\S+) : \w+\[[^\]]* x (\d+)\] (?!slot)', program, re.M)}
    for start, call, tile, text in tasks(program):
        clause = "write" if what == "more" else what
        clauses = re.search(rf"\b{clause} ([^;\n]*)", text)
        if not clauses:
            continue
        for match in REGION.finditer(clauses[1]):
            name, r0, r1, c0, c1 = match[1], *map(int, match.group(2, 3, 4, 5))
            # What doesn't depend on launch values or on another rank's place.
            if (call, name) in done or "rank_rows" in match[6] or "on=" in match[6] or name not in widths or c1 - c0 < 2:
                continue
            if what == "more" and ("pitch" in match[6] or c1 >= widths[name]):
                continue
            done.add((call, name))
            last = c1 + 1 if what == "more" else c1 - 1
            at = start + clauses.start(1) + match.start()
            changed = f"{name}[{r0}:{r1}, {c0}:{last}{match[6]}]"
            element = f"column {c1 if what == 'more' else c1 - 1})"
            if "pitch" in match[6]:
                element = "column "
            yield kinds[call], tile, name.strip('"'), element, program[:at] + changed + program[at + len(match[0]) :]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    failures, cases, functions = [], 0, set()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MACO_CACHE_DIR": os.path.join(folder, "cache")}

        def run(graph, program, number):
            path = os.path.join(folder, f"{number}.program")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            ran = subprocess.run([args.maco_run, graph, "--device", "cpu", "--target", "cpu", "--check-access", "--replay", "1", "--program", path],
                                 capture_output=True, text=True, env=environment)
            return ran.returncode, ran.stdout + ran.stderr

        for name in GRAPHS:
            graph = os.path.join(ROOT, "examples", "graphs", name)
            program = subprocess.run([args.macoc, graph, "--target", "cpu", "--emit=program"], capture_output=True, text=True, check=True).stdout
            status, said = run(graph, program, name)
            cases += 1
            if status != 0:
                failures.append(f"{name}: the intact Program: status {status}: {said}")
                continue
            todo = [(what, *variant) for what in ("read", "write", "more") for variant in variants(program, what)]

            def check(case, graph=graph, name=name):
                number, (what, function, tile, tensor, element, changed) = case
                status, said = run(graph, changed, f"{name}-{number}")
                verb = {"read": "reads", "write": "writes", "more": "does not write"}[what]
                good = status == 4 and re.search(
                    rf"tile {tile} (\(loader\) )?{verb} element \d+ \(row \d+, {re.escape(element)}[^']* of '{re.escape(tensor)}' on rank", said)
                return f"{name}: {function} tile {tile}, {what} of '{tensor}', {element.rstrip(')')}: status {status}: {said.strip()}", good, (what, function)

            with ThreadPoolExecutor(2) as pool:
                for said, good, function in pool.map(check, enumerate(todo)):
                    cases += 1
                    functions.add(function)
                    if not good:
                        failures.append(said)
                    elif args.verbose:
                        print(said)
    for failure in failures:
        print(failure)
    for what in ("read", "write", "more"):
        print(f"{what}: {', '.join(sorted(f for w, f in functions if w == what))}")
    print(f"{cases} runs, {len(failures)} failures")
    return 1 if failures or len(functions) < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
