#!/usr/bin/env python3
"""Writes first_steps.ipynb, with the outputs of its cells as they run here; with --check it compares them.

  python examples/python/first_steps.py [--check]

Times differ at each run: of cells that print them only the first word of each line is compared.
"""

import argparse
import ast
import contextlib
import io
import json
import pathlib
import re
import sys

FILE = pathlib.Path(__file__).resolve().with_suffix(".ipynb")
TEXT, CODE, TIMES = "markdown", "code", "code whose output has times"

CELLS = [
    (
        TEXT,
        """# First steps

A graph over two ranks, the kernel that it becomes, a run of both ranks in this process on the CPU target, and what became of the
ops. Nothing here needs a GPU or PyTorch; NumPy holds the tensors. `docs/python.md` goes on from here.""",
    ),
    (
        TEXT,
        """## A graph

Shapes are those of one rank: each has half of the hidden columns, and the all-reduce adds the ranks' parts.""",
    ),
    (
        CODE,
        """import numpy as np
import maco

g = maco.Graph("mlp", world=2)
x = g.input("x", "f16", [16, 64])
norm = g.param("norm", "f16", [64])
gate, up = g.param("gate", "f16", [128, 64]), g.param("up", "f16", [128, 64])
down = g.param("down", "f16", [64, 128])
n = g.rmsnorm(x, norm, eps=1e-5, name="n")
h = g.swiglu(g.matmul(n, gate, transpose_b=True), g.matmul(n, up, transpose_b=True), name="h")
part = g.matmul(h, down, transpose_b=True, name="part")
g.output("y", x + g.allreduce(part, name="sum"))
print(g.text())""",
    ),
    (TEXT, """A mistake is told with the line of the call:"""),
    (
        CODE,
        """wrong = maco.Graph("wrong")
try:
    wrong.output("y", wrong.matmul(wrong.input("a", "f32", [4, 8]), wrong.input("b", "f32", [9, 3])))
    wrong.check()
except maco.GraphError as error:
    print(error.diagnostics[0].severity + ":", error.diagnostics[0].text)""",
    ),
    (
        TEXT,
        """## A kernel

Compiling proves the graph's program, all waits between tasks included, and writes one CUDA source; `target="sm_90a"` is for H100
and H200.""",
    ),
    (
        CODE,
        """kernel = g.compile(target="cpu")
print(kernel)
print(kernel.report)""",
    ),
    (
        TEXT,
        """Of seven ops four kinds of tasks are left: the norm is in the products that read it, and `part` sends its tiles to the other rank
as they are done. The source is one file:""",
    ),
    (
        CODE,
        """source = kernel.source
print("\\n".join(source[source.index("namespace maco_program {"):].splitlines()[:6]))""",
    ),
    (
        TEXT,
        """## A run

A session is a kernel with its memory. Both ranks run as threads of this process; started as a process each they would pass
`process_a_rank=True`.""",
    ),
    (
        CODE,
        """random = np.random.default_rng(0)
def normal(*shape, scale=1.0):
    return random.normal(0, scale, shape).astype(np.float16)

x, norm = normal(16, 64), np.float16(1) + normal(64, scale=0.1)
gates, ups = normal(2, 128, 64, scale=0.125), normal(2, 128, 64, scale=0.125)
downs = normal(2, 64, 128, scale=0.06)

session = maco.Session(kernel)
session.allocate()
for rank in session.ranks:
    session.write("x", x, rank)
    session.write("norm", norm, rank)
    session.write("gate", gates[rank], rank)
    session.write("up", ups[rank], rank)
    session.write("down", downs[rank], rank)
session.run()

x, norm, gates, ups, downs = (one.astype(np.float64) for one in (x, norm, gates, ups, downs))
n = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * norm
def mlp(rank):
    gate, up = n @ gates[rank].T, n @ ups[rank].T
    return (gate / (1 + np.exp(-gate)) * up) @ downs[rank].T

wanted = x + mlp(0) + mlp(1)
for rank in session.ranks:
    print(f"rank {rank}: as NumPy computes it:", np.allclose(session.read("y", rank), wanted, rtol=2e-3, atol=2e-2))
print("the same bits on both ranks:", np.array_equal(session.read("y", 0), session.read("y", 1)))
session.close()""",
    ),
    (
        TEXT,
        """## What became of an op

`maco explain GRAPH OP` on the command line tells its story: its tasks, what it costs, what it waits for and who waits for it.""",
    ),
    (
        CODE,
        """import pathlib
import subprocess
import sys
import tempfile

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "mlp.maco").write_text(g.text())
told = [sys.executable, "-m", "maco", "explain", "mlp.maco", "part", "--target=cpu"]
print(subprocess.run(told, cwd=folder, capture_output=True, text=True, check=True).stdout)""",
    ),
    (
        TEXT,
        """## Where the time goes

A session that is opened with `profile=True` stamps its tasks. `path` adds up to the launch; what isn't on it isn't worth making faster
(`docs/profile.md`). These are times of threads on a CPU: on GPUs they mean something.""",
    ),
    (
        TIMES,
        """with maco.Session(kernel, profile=True) as session:
    session.allocate()
    session.run()
    profile = session.profile()
print(profile.table)""",
    ),
    (
        TEXT,
        """`profile.trace` is JSON for [Perfetto](https://ui.perfetto.dev): a process for each rank, a lane for each SM, an arrow for each
wait.""",
    ),
    (
        CODE,
        """import json
events = json.loads(profile.trace)
events = events["traceEvents"] if isinstance(events, dict) else events
print(sorted({event["name"] for event in events if event["ph"] == "X" and event["cat"] not in ("wait", "loader")}))""",
    ),
]


def run(source, names):
    """What a cell prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(ast.parse(source), "<cell>", "exec"), names)
    return out.getvalue()


def book():
    """The notebook, and the numbers of the cells whose outputs have times."""
    names, cells, timed, count = {"__name__": "__main__"}, [], set(), 0
    for at, (kind, source) in enumerate(CELLS):
        identity = f"cell-{at}"
        if kind == TEXT:
            cells.append({"cell_type": "markdown", "id": identity, "metadata": {}, "source": lines(source)})
            continue
        count += 1
        if kind == TIMES:
            timed.add(at)
        output = {"name": "stdout", "output_type": "stream", "text": lines(run(source, names))}
        cells.append(
            {"cell_type": "code", "execution_count": count, "id": identity, "metadata": {}, "outputs": [output], "source": lines(source)}
        )
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, timed


def lines(text):
    return text.splitlines(keepends=True)


def compared(made, timed):
    """The cells as text, without what differs from run to run."""
    found = []
    for at, cell in enumerate(made["cells"]):
        text = "".join(cell["source"])
        for output in cell.get("outputs", []):
            printed = "".join(output["text"])
            printed = re.sub(r"(kernel\.cu +)\d+", r"\1", printed)  # it grows with the headers
            first = sorted({line.split()[0] for line in printed.splitlines() if line.strip()})
            text += "\n-> " + (" ".join(first) if at in timed else printed)
        found.append(text)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a cell prints something else")
    args = parser.parse_args()
    made, timed = book()
    if not args.check:
        FILE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {FILE.name}: {sum(cell['cell_type'] == 'code' for cell in made['cells'])} cells of code")
        return 0
    written = json.loads(FILE.read_text(encoding="utf-8"))
    for before, now in zip(compared(written, timed), compared(made, timed), strict=True):
        if before != now:
            print(f"{FILE.name} is out of date: run {pathlib.Path(__file__).name}\n--- written\n{before}\n--- real\n{now}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
