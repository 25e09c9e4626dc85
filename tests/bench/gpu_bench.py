"""What the benchmarks on a GPU share: graphs run by maco-run, peers as CUDA graphs of PyTorch in the same process, a table and JSON."""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time


def arguments(description, runs=True):
    """The parser of a benchmark's options. `runs`: also those for maco-run, --options and --profiles."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", default="build/bin", help="where maco-run is")
    parser.add_argument("--json", help="where the figures go, with command, device and date")
    parser.add_argument("--svg", help="where a plot goes")
    parser.add_argument("--launches", type=int, default=100, help="of which the median is taken")
    parser.add_argument("--no-peers", action="store_true", help="leave out PyTorch")
    if runs:
        parser.add_argument("--options", default="", help="for maco-run: '--no-fuse --no-load-ahead'")
        parser.add_argument("--profiles", help="a folder for a table and a trace of each graph")
    return parser


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def maco(self, name, graph, *options, timeout=580):
        """Median microseconds of a launch, or nothing where it fails: then the reason is printed."""
        options = [*self.args.options.split(), *options]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.maco")
            with open(path, "w") as file:
                file.write(graph)
            command = [os.path.join(self.args.bin, "maco-run"), path, "--device", "cuda", "--bench", str(self.args.launches), *options]
            if self.args.profiles:
                os.makedirs(self.args.profiles, exist_ok=True)
                command += ["--profile", os.path.join(self.args.profiles, name + ".trace.json")]
            begin = time.time()
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
            except subprocess.TimeoutExpired:
                print(f"{name}: not done in {timeout} s", flush=True)
                return None
        found = re.search(r"median ([0-9.]+) us", done.stdout)
        if done.returncode or not found:
            print(f"{name}: maco-run ended with {done.returncode}: {done.stderr.strip()[-400:]}", flush=True)
            return None
        if self.args.profiles:
            with open(os.path.join(self.args.profiles, name + ".txt"), "w") as file:
                file.write(done.stdout)
        print(f"  ({name}: {time.time() - begin:.0f} s to compile, fill and run)", file=sys.stderr, flush=True)
        return float(found[1])

    def add(self, **row):
        """A line of the table; of two times the ratio is added."""
        if row.get("maco_us") and row.get("peer_us"):
            row["ratio"] = round(row["peer_us"] / row["maco_us"], 3)
        self.rows.append(row)
        print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()), flush=True)

    def finish(self, **more):
        if not self.args.json:
            return
        record = {"command": " ".join(["python3", *sys.argv]), "date": datetime.date.today().isoformat(),
                  "commit": os.environ.get("MACO_COMMIT", ""), "device": device(), **more, "rows": self.rows}
        with open(self.args.json, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


def device():
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                              check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "none"


def peer_us(step, launches):
    """Median microseconds of `step` as one CUDA graph."""
    import torch
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(launches):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    del graph
    return statistics.median(times)


def plot(path, title, axis, series, log=True):
    """A line a series over the same points: series is {name: [(x, y), ...]}, y grows upwards from 0."""
    if not path:
        return
    import itertools
    import math
    width, height, left, bottom, top, right = 720, 360, 60, 40, 40, 150
    points = [p for line in series.values() for p in line]
    if not points:
        return
    place = (lambda x: math.log2(max(x, 1))) if log else (lambda x: x)
    low, high = min(place(x) for x, _ in points), max(place(x) for x, _ in points)
    most = max(y for _, y in points) * 1.05
    at_x = lambda x: left + (place(x) - low) / max(high - low, 1e-9) * (width - left - right)
    at_y = lambda y: height - bottom - y / most * (height - bottom - top)
    colors = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#7f7f7f"]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="20" font-size="14">{title}</text>',
           f'<text x="{left}" y="{height - 8}">{axis}</text>']
    for i in range(5):
        y = most * i / 4
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    for x in sorted({x for x, _ in points}):
        out.append(f'<text x="{at_x(x):.1f}" y="{height - bottom + 16}" text-anchor="middle" font-size="10">{x}</text>')
    for (name, line), color in zip(series.items(), itertools.cycle(colors)):
        out.append('<polyline fill="none" stroke-width="2" stroke="' + color + '" points="' +
                   " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(line)) + '"/>')
        x, y = sorted(line)[-1]
        out.append(f'<text x="{at_x(x) + 8:.1f}" y="{at_y(y) + 4:.1f}" fill="{color}">{name}</text>')
    out.append("</svg>")
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n")
