#!/usr/bin/env python3
"""A profile of maco-run's on the CPU target has every task where it belongs, and arrows that agree with the Program.

  profile_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run

Nothing here depends on how long anything takes: what is held against the Program is which slices and arrows there are, and in which order
they begin and end.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "examples", "graphs")
# Packets; counters and pages that are loaded ahead and behind waits; words on peers and packets among eight ranks.
GRAPHS = {"tp_mlp.maco": ["--launches", "2"], "decode_layer.maco": ["--bench", "2"], "ring_shift.maco": [], "alltoall.maco": []}
# Leaves some ranks out of some tasks.
BROADCAST = "broadcast.maco"
TASK = re.compile(r"^  task t(\d+) (\w+)#(\d+) \w+ sm=(\d+) place=(\d+)( ranks=(0x[0-9a-f]+|\d+))?[^\n]*", re.M)


class Program:
    def __init__(self, text):
        self.world = int(re.search(r" world=(\d+)", text)[1])
        self.ops = {m[1]: m[2] for m in re.finditer(r'^  call (\w+) = .*? op=(\S+)', text, re.M)}
        self.loads = {m[1] for m in re.finditer(r"^  call (\w+) = [^\n]* loads \d", text, re.M)}
        self.local = {m[1] for m in re.finditer(r'^  event ("[^"]*"|\S+) (?:local|hint)', text, re.M)}
        self.tasks = {}
        for m in TASK.finditer(text):
            waits = re.search(r"; wait ([^;\n]*)", m[0])
            each = re.findall(r'("[^"]*"|[^\s,]+)([^,]*)(?:, |$)', waits[1]) if waits else []
            self.tasks[int(m[1])] = {"call": m[2], "tile": int(m[3]), "sm": int(m[4]), "place": int(m[5]),
                                     "ranks": int(m[7], 0) if m[7] else -1, "waits": bool(each),
                                     # What is of an earlier launch has no arrow.
                                     "arrives": [name.strip('"') for name, more in each if " lag " not in more]}

    def runs(self, rank, task):
        return self.tasks[task]["ranks"] >> rank & 1


def problems(program, events, loads):
    """What is wrong with a trace, and how many slices and arrows were looked at."""
    wrong = []
    slices, waits, fills, lanes, starts, ends = {}, {}, {}, {}, {}, {}
    for e in events:
        if e["ph"] == "X":
            kind = waits if e["name"] == "wait" else fills if e["cat"] == "loader" else slices
            key = (e["pid"], e["args"]["task"])
            if key in kind:
                wrong.append(f"task {key} has two slices {e['name']}")
            # Nanoseconds, in which times are exact.
            begin = round(e["ts"] * 1000)
            kind[key] = {**e, "begin": begin, "end": begin + round(e["dur"] * 1000)}
            lanes.setdefault((e["pid"], e["tid"]), []).append(kind[key])
        elif e["ph"] in "sf":
            (starts if e["ph"] == "s" else ends)[e["id"]] = {**e, "at": round(e["ts"] * 1000)}
    wanted = {(rank, task) for rank in range(program.world) for task in program.tasks if program.runs(rank, task)}
    if set(slices) != wanted:
        wrong.append(f"slices of {len(slices)} tasks, not of the {len(wanted)} that run")
    if set(waits) != {key for key in wanted if program.tasks[key[1]]["waits"]}:
        wrong.append("'wait' slices are not those of the tasks that wait")
    if set(fills) != {key for key in wanted if program.tasks[key[1]]["call"] in program.loads}:
        wrong.append(f"the loader's slices ({len(fills)}) are not those of tasks with pages")
    for key in wanted & set(slices):
        task, s = program.tasks[key[1]], slices[key]
        if (s["name"], s["args"]["tile"], s["tid"]) != (program.ops[task["call"]], task["tile"], 2 * task["sm"]):
            wrong.append(f"task {key} is {s['name']} tile {s['args']['tile']} in lane {s['tid']}")
        if key in waits and not waits[key]["begin"] <= waits[key]["end"] <= s["begin"]:
            wrong.append(f"task {key} begins to work before its wait has ended")
        if key in fills and fills[key]["begin"] > s["end"]:
            wrong.append(f"task {key} ends before its loader begins")
        if s["args"]["waits for pages us"] + s["args"]["waits for packets us"] > s["dur"] + 1e-9:
            wrong.append(f"task {key} waits for longer than it takes")
    for (rank, lane), list_ in lanes.items():
        list_.sort(key=lambda s: (s["begin"], s["end"]))
        for before, after in zip(list_, list_[1:]):
            if after["begin"] < before["end"]:
                wrong.append(f"rank {rank} lane {lane}: {after['name']} begins before {before['name']} ends")
        places = [program.tasks[s["args"]["task"]]["place"] for s in list_ if s["name"] != "wait"]
        if places != sorted(places):
            wrong.append(f"rank {rank} lane {lane}: the tasks are not in the stream's order")
    if set(starts) != set(ends):
        wrong.append("arrows without a begin or an end")
    said = {}
    for id_ in set(starts) & set(ends):
        start, end = starts[id_], ends[id_]
        if start["at"] > end["at"]:
            wrong.append(f"the arrow of {start['name']} goes {start['at'] - end['at']} ns back in time")
        # An arrow starts within a slice, and ends within a slice of a task for which its event arrives.
        leaves = [s for s in lanes.get((start["pid"], start["tid"]), []) if s["begin"] <= start["at"] <= s["end"] and s["name"] != "wait"]
        reaches = [key for key, s in slices.items() if key[0] == end["pid"] and s["tid"] == end["tid"] and
                   s["begin"] <= end["at"] <= s["end"] and start["name"] in program.tasks[key[1]]["arrives"]]
        if not leaves or not reaches:
            wrong.append(f"the arrow of {start['name']} hangs in the air")
        said.setdefault((end["pid"], start["name"]), []).append(id_)
        if start["name"] in program.local and start["pid"] != end["pid"]:
            wrong.append(f"the arrow of {start['name']} leaves its rank")
    for rank in range(program.world):
        for name in {name for task in program.tasks.values() for name in task["arrives"]}:
            expected = sum(task["arrives"].count(name) for number, task in program.tasks.items() if program.runs(rank, number))
            if len(said.get((rank, name), [])) != expected:
                wrong.append(f"rank {rank}: {len(said.get((rank, name), []))} arrows of '{name}', not {expected}")
    if loads and not fills:
        wrong.append("no loader filled anything")
    return wrong, f"{len(slices)} tasks, {len(waits)} waits, {len(fills)} of loaders, {len(starts)} arrows"


def table_problems(text, program):
    lines = text.splitlines()
    time = re.search(r": ([\d.]+) us from the first", text)
    head = next((i for i, line in enumerate(lines) if line.startswith("op ")), None)
    if not time or head is None:
        return [f"no table in:\n{text}"]
    rows = []
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        # An op's name and kind, or of all a name; then the numbers. Functions of an op are indented.
        if not line.startswith(" "):
            rows.append((line.split()[0], [float(x) for x in line.split()[-11:]]))
    wrong, ops, total = [], [row for row in rows if row[0] != "all"], rows[-1][1]
    if {name for name, _ in ops} != set(program.ops.values()):
        wrong.append(f"the table's ops are {[name for name, _ in ops]}")
    for column in (0, 1, 2, 3, 4, 5, 6, 10):
        if abs(sum(row[column] for _, row in ops) - total[column]) > 0.01 * (len(ops) + 1):
            wrong.append(f"column {column} of the table does not add up")
    if abs(total[0] - float(time[1])) > 0.011:
        wrong.append("the critical path is not as long as the launch")
    if [row[0] for _, row in ops] != sorted((row[0] for _, row in ops), reverse=True):
        wrong.append("the table is not in order")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    failures = 0

    def told(what, wrong, more=""):
        nonlocal failures
        failures += bool(wrong)
        print(f"{what}: {'ok' if not wrong else 'FAILED'}{more}")
        for line in wrong[:10]:
            print("  " + line)

    def run(*command):
        return subprocess.run([args.maco_run, *command, "--device", "cpu"], capture_output=True, text=True)

    def program_of(graph, *options):
        return Program(subprocess.run([args.macoc, graph, *options, "--emit=program"], capture_output=True, text=True, check=True).stdout)

    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        for name, options in {**GRAPHS, BROADCAST: []}.items():
            graph = os.path.join(EXAMPLES, name)
            program = program_of(graph, "--target", "cpu")
            ran = run(graph, "--profile", trace, *options)
            if ran.returncode != 0:
                told(name, [f"status {ran.returncode}: {ran.stderr}"])
                continue
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)
            os.remove(trace)
            wrong, counts = problems(program, events, bool(program.loads))
            told(name, wrong + table_problems(ran.stdout, program), f", {counts}")
            if name == BROADCAST and all(program.runs(rank, task) for rank in range(program.world) for task in program.tasks):
                told(name, ["every rank runs every task"])

        # A kernel compiled for another machine, run without a trace.
        graph = os.path.join(EXAMPLES, "allreduce.maco")
        kernel = os.path.join(folder, "kernel.cu")
        subprocess.run([args.macoc, graph, "-o", kernel], check=True)
        before = set(os.listdir(folder))
        ran = run(kernel, "--profile", "-")
        program = program_of(graph)
        wrong = [ran.stderr] if ran.returncode else table_problems(ran.stdout, program)
        told("kernel.cu", wrong + [f"wrote {name}" for name in set(os.listdir(folder)) - before])

        # One whose code has no stamps.
        with open(kernel, encoding="utf-8") as file:
            code = file.read()
        without, count = re.subn(r"\n *(?:ctx\.|Context::)profile_(?:cta|signalled|signalled_for)\([^;]*;", "", code)
        with open(kernel, "w", encoding="utf-8") as file:
            file.write(without)
        ran = run(kernel, "--profile", "-")
        good = count > 0 and ran.returncode == 4 and "left no stamps" in ran.stderr
        told("kernel.cu without stamps", [] if good else [f"{count} lines, status {ran.returncode}: {ran.stderr}"])
        for what, options, status, said in (
                ("fibres", ["--profile", "-", "--replay", "1"], 2, "wants real time"),
                ("no folder", ["--profile", os.path.join(folder, "none", "trace.json")], 2, "there is no folder")):
            ran = run(graph, *options)
            told(what, [] if ran.returncode == status and said in ran.stderr else [f"status {ran.returncode}: {ran.stderr}"])
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
