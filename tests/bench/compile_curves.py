#!/usr/bin/env python3
"""How compiling grows: macoc with all proofs on graphs of growing size, by pass, with its memory and the size of its product.

  compile_curves.py --macoc build/bin/macoc --maco-run build/bin/maco-run --json now.json --svg now.svg [--before before.json]
  compile_curves.py --only decode --nvrtc

A shape's larger graphs are left out once one took longer than the limit. The slope is that of the logarithm of seconds over that of tasks,
by least squares over the runs of a shape that took 0.1 s or more: 1 is linear. Seconds are those of the wall or of the CPU, whichever are
fewer, so that other work on the machine doesn't count; those of a pass are its share of them. The limit is one of CPU seconds.
With --only, --json keeps what the file has of other shapes, and --svg draws that, too. A peak below 30 MB is this script's own.
"""

import argparse
import json
import math
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time

from compile_shapes import shapes
from curves_svg import COLOURS, draw

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DECODE = os.path.join(ROOT, "examples", "graphs", "llama70b_decode_tp8.maco")
PASSES = []  # of macoc, in their order; main() asks it
NOISE = 0.1  # seconds below which a run says nothing of growth


def execute(command, limit, memory_gb):
    """(status or None if it took longer than the limit, seconds, wall seconds, peak memory in bytes, what it said)"""

    def restrict():
        resource.setrlimit(resource.RLIMIT_AS, (memory_gb << 30, memory_gb << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))

    with tempfile.TemporaryFile("w+") as said:
        begin = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=restrict)
        timer = threading.Timer(5 * limit, child.kill)
        timer.start()
        _, state, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(state)
        cpu = usage.ru_utime + usage.ru_stime
        late = child.returncode < 0 and (cpu > 0.8 * limit or wall >= 5 * limit)
        said.seek(0)
        return None if late else child.returncode, min(cpu, wall), wall, usage.ru_maxrss * 1024, said.read()


def number(pattern, text):
    found = re.search(pattern, text, re.M)
    return int(found[1]) if found else 0


def compile_graph(args, graph, folder):
    kernel = os.path.join(folder, "kernel.cu")
    command = [args.macoc, graph, "--target", args.target, "-o", kernel, "--report", "--time-passes"]
    status, seconds, wall, memory, said = execute(command, args.limit, args.memory)
    run = {"seconds": round(seconds, 3), "wall_seconds": round(wall, 3), "memory_bytes": memory, "status": "ok"}
    if status is None:
        run["status"] = f"over {args.limit:g} s"
    elif status != 0:
        run["status"] = said.strip().splitlines()[0].partition("error: ")[2] if "error: " in said else f"status {status}"
    else:
        passes = re.findall(r"^ +([\d.]+)  (\S.*)$", said, re.M)
        run["passes"] = {name: round(float(ms) / 1e3 * seconds / wall, 6) for ms, name in passes if name != "in all"}
        run["tasks"] = sum(int(n) for n in re.findall(r"^(?:compute|comm) +\S+ +\d+ +(\d+)", said, re.M))
        run["waits_inserted"] = number(r"^waits +(\d+)", said)
        run["waits"] = number(r"(\d+) left$", said)
        run["symmetric_bytes"] = number(r"^symmetric +(\d+)", said)
        run["kernel_bytes"] = os.path.getsize(kernel)
        if args.nvrtc:
            cubin = os.path.join(folder, "kernel.cubin")
            begin = time.monotonic()
            subprocess.run([args.macoc, graph, "-q", "--target", args.target, "--emit=cubin", "-o", cubin], check=True,
                           env={**os.environ, "MACO_CACHE_DIR": ""})
            run["nvrtc_seconds"] = round(time.monotonic() - begin - wall, 2)
            run["cubin_bytes"] = os.path.getsize(cubin)
    return run


def write_safetensors(path, tensors):
    header = {f"x{i}": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]} for i in range(tensors)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(16 * tensors))


def read_inputs(args, graph, folder, tensors):
    inputs = os.path.join(folder, "inputs.safetensors")
    write_safetensors(inputs, tensors)
    command = [args.maco_run, graph, "-q", "--device", "cpu"]
    subprocess.run(command, check=True, capture_output=True)  # the kernel is in the cache from now on
    status, seconds, wall, memory, _ = execute([*command, "--inputs", inputs], args.limit, args.memory)
    state = f"over {args.limit:g} s" if status is None else "ok" if status == 0 else f"status {status}"
    return {"seconds": round(seconds, 3), "wall_seconds": round(wall, 3), "memory_bytes": memory, "status": state, "tasks": tensors,
            "passes": {}}


def slope(runs, seconds):
    """The slope of log seconds over log tasks, or None."""
    points = [(math.log(r["tasks"]), math.log(seconds(r))) for r in runs if r["status"] == "ok" and seconds(r) >= NOISE]
    if len({x for x, _ in points}) < 2:
        return None
    x_mean, y_mean = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)


def headings():
    return (f"{'size':>12} {'tasks':>8} {'seconds':>8} {'wall':>7}" + "".join(f" {p:>{width(p)}}" for p in PASSES) +
            f" {'rest':>7} {'MB peak':>8} {'kernel MB':>9} {'symm. MB':>8}")


def width(name):
    return max(len(name), 5)


def rest(run, passes=None):
    """Seconds outside of these passes, of all if none are named."""
    return max(run["seconds"] - sum(run["passes"].get(p, 0) for p in passes or PASSES), 0)


def row(label, run, before):
    if run["status"] != "ok":
        cells = f"{label:>12}  {run['status']}"
        return cells if run["status"] == "not run" else f"{cells} ({run['seconds']:.1f} s, {run['memory_bytes'] / 1e6:.0f} MB)"
    cells = f"{label:>12} {run['tasks']:8} {run['seconds']:8.2f} {run['wall_seconds']:7.2f}"
    cells += "".join(f" {run['passes'].get(p, 0):{width(p)}.2f}" for p in PASSES)
    megabytes = [run.get(key, 0) / 1e6 for key in ("memory_bytes", "kernel_bytes", "symmetric_bytes")]
    cells += f" {rest(run):7.2f} {megabytes[0]:8.0f} {megabytes[1]:9.2f} {megabytes[2]:8.1f}"
    if "nvrtc_seconds" in run:
        cells += f"  NVRTC {run['nvrtc_seconds']:.2f} s, cubin {run['cubin_bytes'] / 1e6:.2f} MB"
    if before:
        was = f"{before['seconds']:.2f} s, {before['memory_bytes'] / 1e6:.0f} MB" if before["status"] == "ok" else before["status"]
        cells += f"  before: {was}"
    return cells


def slopes(runs):
    runs = [r for r in runs.values() if r["status"] == "ok"]
    found = {"all": slope(runs, lambda r: r["seconds"]), **{p: slope(runs, lambda r, p=p: r["passes"].get(p, 0)) for p in PASSES}}
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value is not None) or f"no two runs of {NOISE} s"


def series(runs, before):
    """Lines of the plot: all, passes with a colour that reach the noise, the rest without these, and the seconds before."""
    done = [r for r in runs.values() if r["status"] == "ok"]
    lines = {"all": [(r["tasks"], r["seconds"]) for r in done]}
    shown = [p for p in PASSES if p in COLOURS]
    for name in shown + ["the rest"]:
        line = [(r["tasks"], rest(r, shown) if name == "the rest" else r["passes"].get(name, 0)) for r in done]
        if any(s >= NOISE for _, s in line):
            lines[name] = [(t, s) for t, s in line if s > 0.001]
    lines["before"] = [(r["tasks"], r["seconds"]) for r in before.values() if r["status"] == "ok"]
    return {name: [p for p in line if p[0] > 0 and p[1] > 0] for name, line in lines.items()}


def summary(known, figures, before):
    """A table in Markdown: each shape's largest graph, or the smallest over the limit before that."""

    def cell(run, key="", scale=1.0, digits=0):
        if not run or run["status"] != "ok":
            return run["status"] if run and key == "seconds" else ""
        return f"{run.get(key, 0) / scale:,.{digits}f}"

    titles = ["shape", "graph", "tasks", *(["seconds before", "now"] if before else ["seconds"]), "slope", "most of it", "MB",
              "kernel.cu MB"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for shape in known:
        runs, old = figures.get(shape.name, {}), before.get(shape.name, {})
        done = [label for label, run in runs.items() if run["status"] == "ok"]
        for label in done[-1:] + [label for label, run in runs.items() if run["status"] not in ("ok", "not run")]:
            run = runs[label]
            passes = {**run.get("passes", {}), "the rest": rest(run)} if run["status"] == "ok" else {"": 0}
            most = max(passes, key=passes.get)
            cells = [f"`{shape.name}`", label, cell(run, "tasks"), *([cell(old.get(label), "seconds", digits=2)] if before else []),
                     cell(run, "seconds", digits=2), slopes(runs).split(", ")[0].replace("all ", "") if label == done[-1] else "",
                     f"{most} {passes[most]:.2f}" if most else "", cell(run, "memory_bytes", 1e6), cell(run, "kernel_bytes", 1e6, 2)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def by_pass(known, figures):
    """A table in Markdown: the seconds of every pass in the largest graph of each shape that takes a second or more."""
    columns = []
    for shape in known:
        done = [run for run in figures.get(shape.name, {}).values() if run["status"] == "ok" and run["passes"]]
        if done and done[-1]["seconds"] >= 1:
            columns.append((shape.name, done[-1]))
    lines = ["| pass | " + " | ".join(f"`{name}`" for name, _ in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in PASSES:
        lines.append(f"| {name} | " + " | ".join(f"{run['passes'].get(name, 0):.2f}" for _, run in columns) + " |")
    lines.append("| the rest | " + " | ".join(f"{rest(run):.2f}" for _, run in columns) + " |")
    return "\n".join(lines) + "\n"


def measure(args, shape, before):
    runs, late = {}, False
    for label, text in shape.graphs:
        if late:
            runs[label] = {"status": "not run"}
        else:
            with tempfile.TemporaryDirectory() as folder:
                graph = os.path.join(folder, "graph.maco")
                with open(graph, "w", encoding="utf-8") as file:
                    file.write(text)
                tensors = shape.file_tensors.get(label)
                runs[label] = read_inputs(args, graph, folder, tensors) if tensors else compile_graph(args, graph, folder)
            late = runs[label]["status"].startswith("over ")
        print(row(label, runs[label], before.get(label)), flush=True)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", default="build/bin/macoc")
    parser.add_argument("--maco-run", default="build/bin/maco-run", help="reads the file of inputs of the shape safetensors")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", default="", metavar="SHAPE,...",
                        help="these shapes (default: all; none: what --json has is shown again)")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one graph")
    parser.add_argument("--memory", type=int, default=16, help="GB that a run may map")
    parser.add_argument("--nvrtc", action="store_true", help="compile kernel.cu with NVRTC, too")
    parser.add_argument("--json", help="file to write the figures to")
    parser.add_argument("--svg", help="file to write the curves to")
    parser.add_argument("--summary", help="file to write tables of each shape's largest graph to, in Markdown")
    parser.add_argument("--title", default="macoc, seconds by tasks", help="of the curves")
    parser.add_argument("--before", help="figures of an earlier commit, written by --json, to print beside these")
    args = parser.parse_args()

    listed = subprocess.run([args.macoc, "--list-passes"], check=True, capture_output=True, text=True).stdout
    PASSES.extend(line.split()[0] for line in listed.splitlines() if not line.startswith(" "))  # rules of a pass are indented
    with open(DECODE, encoding="utf-8") as file:
        known = shapes(file.read())
    wanted = args.only.split(",") if args.only else [shape.name for shape in known]
    if unknown := set(wanted) - {"none"} - {shape.name for shape in known}:
        parser.error(f"no shape {', '.join(sorted(unknown))}; there are {', '.join(shape.name for shape in known)}")
    before = {}
    if args.before:
        with open(args.before, encoding="utf-8") as file:
            before = json.load(file)
    figures = {}
    if args.only and args.json and os.path.exists(args.json):
        with open(args.json, encoding="utf-8") as file:
            figures = json.load(file)
    for shape in known:
        if shape.name in wanted:
            print(f"\n{shape.name}: {shape.what}\n{headings()}", flush=True)
            runs = measure(args, shape, before.get(shape.name, {}))
            print(f"{'slopes':>12}: {slopes(runs)}", flush=True)
            figures[shape.name] = runs
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    if args.summary:
        with open(args.summary, "w", encoding="utf-8") as file:
            file.write(summary(known, figures, before) + "\n" + by_pass(known, figures))
    if args.svg:
        panels = [(shape.name, "slopes: " + ", ".join(slopes(figures[shape.name]).split(", ")[:3]),
                   series(figures[shape.name], before.get(shape.name, {}))) for shape in known if shape.name in figures]
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(draw(args.title, panels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
