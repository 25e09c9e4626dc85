#!/usr/bin/env python3
"""docs/first-layer.md as a new user reads it: what it shows to type is where its outputs come from, and all runs in a folder of its own.

The part for GPUs runs on the CPU target. Then what the page says to change next is changed, all at once. (That outputs are as the page
shows them is for tools/update-docs.py to see.)
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-layer.md"
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
MARK = re.compile(r"<!-- output of(?: \(\d+ lines\))?: (.*?) -->")
MAY_FAIL = "sed "  # shows an error
failures = []


def expect(right, what):
    if not right:
        failures.append(what)
        print("FAILED:", what)


def commands(text):
    return [line for block in SHELL.findall(text) for line in block.splitlines() if line]


def shown_is_run(text):
    """A command with a mark right behind its block has the same text there."""
    found = 0
    for match in re.finditer(r"^```sh\n([^\n]*)\n```\n\n" + MARK.pattern, text, re.M):
        found += 1
        expect(match[1] == match[2], f"the page shows '{match[1]}', and the output of '{match[2]}'")
    expect(found >= 5, f"{found} commands with outputs")


class Folder:
    def __init__(self, folder, maco_run):
        self.folder = pathlib.Path(folder)
        shutil.copytree(ROOT / "examples" / "first_layer", self.folder / "examples" / "first_layer")
        path = os.path.dirname(os.path.abspath(maco_run)) + os.pathsep + os.environ["PATH"]
        self.environment = dict(os.environ, PATH=path, NO_COLOR="1", PYTHONDONTWRITEBYTECODE="1")

    def run(self, command):
        command = command.replace(".venv/bin/python", sys.executable).replace("--device cuda", "--device cpu")
        command = re.sub(r"--bench \d+", "--bench 1", command)
        return subprocess.run(command, shell=True, cwd=self.folder, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def edit(self, name, *changes):
        path = self.folder / "examples" / "first_layer" / name
        text = path.read_text()
        for before, after in changes:
            expect(before in text, f"{name} has no '{before}'")
            text = text.replace(before, after)
        path.write_text(text)


def whole_page(folder, text):
    typed = [c for c in commands(text) if not c.startswith("export PATH=")]
    for command in typed:
        ran = folder.run(command)
        expected = 1 if command.startswith(MAY_FAIL) else 0
        expect(ran.returncode == expected, f"'{command}' ends with status {ran.returncode}:\n{ran.stdout}")
    expect(any("--device cuda" in c for c in typed), "the page has no part for GPUs")
    made = folder.folder / "build" / "first_layer"
    for name in ("kernel.cu", "trace.json", "out.1.safetensors"):
        expect((made / name).exists(), f"no {name}")
    return typed


def comparison_sees(folder, compare):
    """Another layer than that of the graph is no success."""
    folder.edit("compare.py", ("+ 1e-5", "+ 1e-1"))
    ran = folder.run(compare)
    expect(ran.returncode == 1 and "y on rank 1: differs from NumPy" in ran.stdout, f"a wrong eps isn't seen:\n{ran.stdout}")
    folder.edit("compare.py", ("+ 1e-1", "+ 1e-5"))


def what_to_change_next(folder, weights, run, compare):
    """A dim for the rows, bf16 and four ranks."""
    folder.edit("layer.maco", ("world = 2) {", "world = 4) {\n  dim tokens <= 64"), ("f16[16, 512]", "f16[tokens, 512]"), ("f16", "bf16"),
                ("w_gate : bf16[512, 512]", "w_gate : bf16[256, 512]"), ("w_up   : bf16[512, 512]", "w_up   : bf16[256, 512]"),
                ("w_down : bf16[512, 512]", "w_down : bf16[512, 256]"))
    folder.edit("weights.py", ("WORLD, TOKENS, COLUMNS, HIDDEN = 2,", "WORLD, TOKENS, COLUMNS, HIDDEN = 4,"),
                ("import numpy as np", "import ml_dtypes\nimport numpy as np"), ("np.float16", "ml_dtypes.bfloat16"))
    folder.edit("compare.py", ("WORLD = 2", "WORLD = 4"), ("import numpy as np", "import ml_dtypes\nimport numpy as np"),
                ("0.002", "0.02"))
    for command in (weights, run + " --dim tokens=16", compare):
        ran = folder.run(command)
        expect(ran.returncode == 0, f"changed: '{command}' ends with status {ran.returncode}:\n{ran.stdout}")
    expect("y on rank 3: as NumPy says" in ran.stdout, f"four ranks: {ran.stdout}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    try:
        import ml_dtypes, numpy, safetensors  # noqa: E401,F401
    except ImportError as missing:
        print(f"skipped: {missing.name} is missing (tools/setup.sh)")
        return 77
    text = PAGE.read_text()
    shown_is_run(text)
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(name, args.maco_run)
        typed = whole_page(folder, text)
        if not failures:
            weights, run, compare = (next(c for c in typed if word in c) for word in ("weights.py", "--device cpu --check", "compare.py"))
            comparison_sees(folder, compare)
            what_to_change_next(folder, weights, run, compare)
    print(f"{len(typed)} commands, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
