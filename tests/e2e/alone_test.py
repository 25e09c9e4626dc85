#!/usr/bin/env python3
"""A kernel.cu for the default target, all of its CTAs on all ranks as threads, from a folder that has nothing else.

  alone_test.py --macoc build/bin/macoc --maco-run build/bin/maco-run
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRAPH = os.path.join(ROOT, "examples", "graphs", "tp_mlp.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # No source tree, no cache, no file of the build but the program itself, no variable that leads to one.
        program = shutil.copy(args.maco_run, os.path.join(folder, "maco-run"))
        empty = os.path.join(folder, "empty")
        os.mkdir(empty)
        kernel = os.path.join(empty, "kernel.cu")
        subprocess.run([args.macoc, GRAPH, "-o", kernel], check=True)
        with open(kernel, encoding="utf-8") as file:
            text = file.read()
        ctas, world = (int(re.search(rf'"{key}":(\d+)', text)[1]) for key in ("ctas", "world"))
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "MACO_CACHE_DIR": ""}
        if "MACO_CXX" in os.environ:
            environment["MACO_CXX"] = os.environ["MACO_CXX"]

        def run(*options):
            start = time.monotonic()
            ran = subprocess.run([program, "kernel.cu", "--device", "cpu", "--check", *options], cwd=empty, env=environment,
                                 capture_output=True, text=True)
            seconds = time.monotonic() - start
            print(f"{' '.join(options) or 'as it is'}: status {ran.returncode} after {seconds:.1f} s\n{ran.stdout}{ran.stderr}", end="")
            return ran

        print(f"{ctas} CTAs x {world} ranks x 2 contexts = {ctas * world * 2} threads")
        if ctas < 100 or world != 2:
            sys.exit("the default target should have all of a GPU's SMs")
        good = run("--launches", "3")
        if good.returncode != 0 or "'y'" not in good.stdout + good.stderr or os.listdir(empty) != ["kernel.cu"]:
            return 1
        # And the check can fail: sums rounded the wrong way round are found.
        with open(kernel, "w", encoding="utf-8") as file:
            file.write(text.replace("{ return fadd(a, b); }", "{ return fadd(a, b * 1.1f); }"))
        bad = run()
        if bad.returncode != 3 or "was edited" not in bad.stderr:
            print("the edited kernel should fail the check (status 3)")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
