#!/usr/bin/env python3
"""ThreadSanitizer reports a data race in an emitted kernel where a wait, a release or an acquire is missing, and none where none is.

  tsan_test.py --macoc build/bin/macoc --maco-run build/tests/maco-run-tsan

`--maco-run` is built with ThreadSanitizer and has it in the kernels that it compiles. The order is taken away in two ways: in the Program's
text one wait of a task at a time; in the kernel the release of a signal or the acquire of a wait.
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
GRAPH = os.path.join(HERE, "tsan_control.maco")
PREPARED = os.path.join(HERE, "..", "ir", "prepared_tasks.maco")  # whose tasks a signaller prepares
ADDR_NO_RANDOMIZE = 0x0040000

# Code of the kernel that orders accesses, and what replaces it to remove the order.
KERNEL = [
    ("release of local events", "add_release_gpu(word, 1);", "add_relaxed(word, 1);"),
    ("release of peer events", "store_release_sys(peer_word(", "store_relaxed(peer_word("),
    ("acquire of local events", "load_acquire_gpu(word)", "load_relaxed(word)"),
    ("acquire of peer events", "load_acquire_sys(word)", "load_relaxed(word)"),
]
# Likewise in a kernel with prepared tasks.
SLOTS = [
    ("release of prepared tasks", "store_release_cta(&memory->ready,", "store_relaxed(&memory->ready,"),
    ("release of a task's slot", "store_release_cta(&memory->done,", "store_relaxed(&memory->done,"),
]


def fixed_addresses():
    """ThreadSanitizer can't work where the kernel randomises more bits of addresses than it knows of; what setarch -R does."""
    try:
        ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
    except (OSError, AttributeError):
        pass


def without_one_wait(program):
    """(what, Program) for the first wait of each call on each kind of event, on tasks that wait for nothing else."""
    kinds = dict(re.findall(r'^  event ("[^"]*"|\S+) (local|peer|packet)', program, re.M))
    found = re.findall(r"^  call (\w+) = (\w+(?: with [\w, ]+)?) op=(\S+)", program, re.M)
    calls = {label: f"{function} of '{op}'" for label, function, op in found}
    seen = set()
    for match in re.finditer(r'^  task \S+ (\w+)#\d+ [^\n]*?(; wait ("[^"]*"|[\w.]+)(?: from \w+)?)(?=;|$)', program, re.M):
        kind = kinds[match[3]]
        # A packet is its own flag: the Program's wait only says so.
        if kind == "packet" or (match[1], kind) in seen:
            continue
        seen.add((match[1], kind))
        yield f"wait of {calls[match[1]]} for {kind} event {match[3]}", program[: match.start(2)] + program[match.end(2) :]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    fixed_addresses()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder,
                       "TSAN_OPTIONS": "exitcode=66:halt_on_error=1:report_signal_unsafe=0"}

        def emit(kind, graph=GRAPH, *options):
            return subprocess.run([args.macoc, graph, "--target", "cpu", f"--emit={kind}", *options], capture_output=True, text=True,
                                  check=True).stdout

        program, kernel, prepared = emit("program"), emit("cuda"), emit("cuda", PREPARED, "--sms", "3")
        cases = [("the intact Program", "program", program, []), ("the intact kernel, with delays", "kernel", kernel, ["--jitter", "1"])]
        cases += [(what, "program", text, None) for what, text in without_one_wait(program)]
        cases.append(("the kernel with prepared tasks, with delays", "kernel", prepared, ["--jitter", "1"]))
        for text, orders in ((kernel, KERNEL), (prepared, SLOTS)):
            for what, order, none in orders:
                if order not in text:
                    sys.exit(f"the kernel has no '{order}' any more")
                cases.append((what, "kernel", text.replace(order, none), None))
        if len(cases) < 3 + 4 + len(KERNEL) + len(SLOTS):
            sys.exit(f"too few waits in the Program:\n{program}")

        def run(case):
            number, (what, kind, text, options) = case
            path = os.path.join(folder, f"{number}.{kind}")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            command = [args.maco_run, *([GRAPH, "--program", path] if kind == "program" else [path]), "--device", "cpu", "--launches", "2"]
            start = time.monotonic()
            ran = subprocess.run(command + (options or []), capture_output=True, text=True, env=environment)
            report = re.search(r"WARNING: ThreadSanitizer: ([\w ]+).*", ran.stderr, re.S)
            # The two accesses, in device functions of the kernel.
            accesses = re.split("Previous ", report[0].split("Location is")[0]) if report else []
            frames = [re.findall(r"\bmaco\w*::ops::(\w+)<[^\n]*kernel\.cu", access) or
                      re.findall(r"\bmaco\w*::(\w+)<[^\n]*kernel\.cu", access) for access in accesses]
            inside = [found[-1] for found in frames if found]
            if options is not None:
                good = ran.returncode == 0 and not report
            else:
                good = ran.returncode == 66 and report and report[1].strip() == "data race" and inside
            told = f"{report[1].strip()} in {' and '.join(inside) or 'no code of the kernel'}" if report else "nothing"
            said = f"{what}: ThreadSanitizer reports {told} (status {ran.returncode}, {time.monotonic() - start:.1f} s)"
            return good, said if good else f"WRONG: {said}\n{ran.stderr}"

        with ThreadPoolExecutor(2) as pool:
            for good, said in pool.map(run, enumerate(cases)):
                print(said)
                failures += not good
    print(f"{len(cases)} runs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
