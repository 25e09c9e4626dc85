#!/usr/bin/env python3
"""Puts the real output of commands into the docs, or checks that what stands there is it.

  tools/update-docs.py [--check] [--bin build/bin]

A block that begins with the line "<!-- output of: COMMAND -->" and ends with "<!-- end of output -->" holds what COMMAND prints, run from
the project's root with the programs on the PATH. "<!-- output of (N lines): ... -->" keeps the first N lines. Between
"<!-- table from: COMMAND -->" and "<!-- end of table -->" the output stands as it is. Outputs must not depend on the machine or the time;
milliseconds are written as "... ms". A page whose commands want .venv/bin/python is left as it is where that has no NumPy.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = re.compile(r"(<!-- table from: (.*?) -->\n)(.*?)(<!-- end of table -->)", re.S)
BLOCK = re.compile(r"(<!-- output of(?: \((\d+) lines\))?: (.*?) -->\n```[a-z]*\n)(.*?)(```\n<!-- end of output -->)", re.S)


def output_of(command, lines, environment, fails=True):
    """`fails`: the command may, to show an error."""
    ran = subprocess.run(command, shell=True, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT,
                         text=True, check=False)
    # A shell's 126 and 127: there is no such command.
    if ran.returncode > 125 or (ran.returncode != 0 and not fails):
        sys.exit(f"'{command}' ended with status {ran.returncode}:\n{ran.stdout}")
    if not ran.stdout.strip():
        sys.exit(f"'{command}' prints nothing: what it was to show is gone")
    text = re.sub(r"\b\d[\d.e+-]* ms\b", "... ms", ran.stdout)
    if lines:
        kept = text.splitlines(keepends=True)
        if len(kept) > int(lines):
            kept = kept[: int(lines)] + ["...\n"]
        text = "".join(kept)
    return text if text.endswith("\n") else text + "\n"


def can_run(text):
    """Whether the Python packages that the page's commands need are installed: tools/setup.sh can't always get them."""
    python = ".venv/bin/python"
    if not any(python in m.group(3) for m in BLOCK.finditer(text)):
        return True
    probe = [str(ROOT / python), "-c", "import numpy, safetensors"]
    return (ROOT / python).exists() and subprocess.run(probe, capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if a block is out of date")
    parser.add_argument("--bin", default=str(ROOT / "build" / "bin"))
    args = parser.parse_args()
    environment = dict(os.environ, PATH=os.path.abspath(args.bin) + os.pathsep + os.environ["PATH"], NO_COLOR="1")
    stale = 0
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        if not can_run(text):
            print(f"skipped: {path.relative_to(ROOT)} needs NumPy and safetensors in .venv (tools/setup.sh)")
            continue
        new = BLOCK.sub(lambda m: m.group(1) + output_of(m.group(3), m.group(2), environment) + m.group(5), text)
        new = TABLE.sub(lambda m: m.group(1) + output_of(m.group(2), None, environment, False) + m.group(4), new)
        if new == text:
            continue
        stale += 1
        if args.check:
            print(f"{path.relative_to(ROOT)} is out of date: run tools/update-docs.py", file=sys.stderr)
            import difflib
            sys.stderr.writelines(list(difflib.unified_diff(text.splitlines(True), new.splitlines(True), "written", "real"))[:60])
        else:
            path.write_text(new)
            print(f"updated {path.relative_to(ROOT)}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
