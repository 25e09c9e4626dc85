"""Many launches in two processes, of which one at random is stopped for a while, again and again: sums.maco adds what each launch
gives to its states, so that a wrong bit in any launch stays. All patterns but send and recv, in packets and in tiles.

   stragglers_test.py --maco-run PATH [--device cuda] [--launches N]

Status 77 (skipped) without numpy."""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

GRAPH = pathlib.Path(__file__).resolve().parent / "sums.maco"
TYPES = {"I32": "i4", "F32": "f4"}


def tensors(path):
    """What a safetensors file has, by name."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = numpy.frombuffer(data[begin + first:begin + last], dtype="<" + TYPES[entry["dtype"]])
    return found


def run(args, launches, stops, folder):
    """The states of both ranks, how often a process was stopped, and what rank 0 said last."""
    command = [args.maco_run, GRAPH, "--device", args.device, "--launches", str(launches), "--timeout", "30",
               "--outputs", os.path.join(folder, f"{launches}.{{rank}}.safetensors")]
    if args.device == "cpu":
        command += ["--sms", "8"]
    processes = []
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost",
                           MASTER_PORT=f"{os.path.basename(folder)}-{launches}")
        processes.append(subprocess.Popen([str(c) for c in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          text=True))
    count = 0
    while stops and all(p.poll() is None for p in processes):
        late = random.choice(processes)
        late.send_signal(signal.SIGSTOP)
        time.sleep(0.03 * random.random())
        late.send_signal(signal.SIGCONT)
        count += 1
        time.sleep(0.01 * random.random())
    said = [p.communicate(timeout=300)[0] for p in processes]
    if any(p.returncode != 0 for p in processes):
        sys.exit(f"status {[p.returncode for p in processes]}:\n" + "\n".join(said))
    states = [tensors(os.path.join(folder, f"{launches}.{rank}.safetensors")) for rank in range(2)]
    return states, count, said[0].strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--launches", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one, _, _ = run(args, 1, False, folder)
        many, stops, said = run(args, args.launches, True, folder)
    wrong = words = 0
    for rank in range(2):
        for name, state in many[rank].items():
            first = one[rank][name]
            expected = numpy.zeros_like(first)
            for _ in range(args.launches):
                expected = expected + first
            wrong += int((state.view("<i4") != expected.view("<i4")).sum())
            words += state.size
    print(f"{said}; processes stopped {stops} times, {wrong} of {words} words wrong")
    return 1 if wrong or words == 0 or stops == 0 else 0


if __name__ == "__main__":
    try:
        import numpy
    except ImportError:
        print("not tested here: numpy is missing")
        sys.exit(77)
    sys.exit(main())
