#!/usr/bin/env python3
"""Every bit of what graphs compute on the CPU target, against a table of hashes that an earlier commit made.

  baseline_test.py --maco-run build/bin/maco-run             compares with tests/e2e/baseline/bits.txt
  baseline_test.py --maco-run build/bin/maco-run --update    writes what differs into the table, for a change that is meant

The graphs are those of examples/graphs, two of them made small, the graphs of this folder that have every op, and those of baseline/: 40
random ones that together have every op, dtype and setting of random_graph.py over 1 to 8 ranks, and every op with bf16, f8 and u8.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "tests", "e2e", "baseline", "bits.txt")
GRAPHS = ["examples/graphs/*.maco", "examples/graphs/*.json", "tests/e2e/*.maco", "tests/e2e/baseline/*.maco"]
NO_GRAPHS = ["tests/e2e/tsan_control.maco"]  # has a race
SEED, LAUNCHES = 1, 2
# Replacements that make a graph small enough.
SMALL = {
    "examples/graphs/llama32_1b_decode.maco": {"0..16": "0..2", "x_16": "x_2", "128256": "1000", "3072": "384", "2560": "320",
                                               "2048": "256", "8192)": "640)", "[8192": "[640", "256, 8192": "256, 640", "512]": "64]"},
    "examples/graphs/llama32_1b_prefill.maco": {"0..16": "0..2", "x_16": "x_2", "128256": "1000", "3072": "384", "2560": "320",
                                                "2047": "255", "2048": "256", "6145)": "385)", "[8192": "[640",
                                                "256, 8192": "256, 640", "512]": "64]"},
    "examples/graphs/qwen3_8b_decode.maco": {"0..36": "0..2", "x_36": "x_2", "151936": "1000", "12288": "640", "6144": "512", "5120": "384",
                                             "4096": "256", "8192": "640", "1024": "128", "[32, 128]": "[2, 128]", "[8, 128]": "[1, 128]"},
    "examples/graphs/llama70b_decode_tp8.maco": {"0..80": "0..2", "x_80": "x_2", "8192": "512", "3584": "224", "4096": "64"},
    "examples/graphs/llama70b_mlp_tp8.maco": {"8192": "512", "3584": "224"},
}
HEAD = """\
# Hashes of outputs and states after {launches} launches with the values of seed {seed}, written by
#   tests/e2e/baseline_test.py --maco-run build/bin/maco-run --update
# which ran, for each graph and with the options in it:
#   maco-run GRAPH --device cpu --seed {seed} --launches {launches} --outputs out.{{rank}}.safetensors
# A graph's line: path, the first 16 digits of the SHA-256 of its text, and the commit whose programs made what follows.
# A tensor's line: name, and for each rank the first 16 digits of the SHA-256 of dtype, shape and bytes.
"""


def digest(*parts):
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()[:16]


def read_text(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    for old, new in SMALL.get(path, {}).items():
        text = text.replace(old, new)
    return text


def graph_paths():
    found = {os.path.relpath(path, ROOT) for pattern in GRAPHS for path in glob.glob(os.path.join(ROOT, pattern))}
    return sorted(found - set(NO_GRAPHS))


def has_nan(dtype, data):
    """Whether a tensor has one: which NaN it is may differ between machines."""
    wide = {"F32": ("I", 0x7FFFFFFF, 0x7F800000), "F16": ("H", 0x7FFF, 0x7C00), "BF16": ("H", 0x7FFF, 0x7F80)}
    narrow = {"F8_E4M3": ("B", 0x7F, 0x7E), "F8_E5M2": ("B", 0x7F, 0x7C)}
    if dtype not in {**wide, **narrow}:
        return False
    code, magnitude, largest = {**wide, **narrow}[dtype]
    return any(v & magnitude > largest for v in struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def hashes(path):
    """Tensor -> the hash of what a file of outputs has of it; and the names of those with a NaN."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    made, nans = {}, []
    for name, tensor in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = tensor["data_offsets"]
        values = data[begin + first : begin + last]
        made[name] = digest(f"{tensor['dtype']} {tensor['shape']} ".encode(), values)
        if has_nan(tensor["dtype"], values):
            nans.append(name)
    return made, nans


def measure(maco_run, path, text, seed):
    """(tensor -> hashes by rank, what went wrong or "")"""
    options = re.search(r"^# options: (.*)", text, re.M)
    with tempfile.TemporaryDirectory() as folder:
        graph = os.path.join(folder, "graph" + os.path.splitext(path)[1])
        outputs = os.path.join(folder, "out.{rank}.safetensors")
        with open(graph, "w", encoding="utf-8") as file:
            file.write(text)
        command = [maco_run, graph, "-q", "--device", "cpu", "--seed", str(seed), "--launches", str(LAUNCHES), "--outputs", outputs]
        ran = subprocess.run(command + (options[1].split() if options else []), capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            return {}, f"maco-run ended with status {ran.returncode}\n{ran.stderr}"
        tensors, found = {}, []
        for rank in range(len(os.listdir(folder)) - 1):
            made, nans = hashes(outputs.format(rank=rank))
            found += [f"'{name}' on rank {rank} has a NaN, whose bits mean nothing" for name in nans]
            for name, value in made.items():
                tensors.setdefault(name, []).append(value)
    return tensors, "\n".join(found)


def read_table():
    """Path -> (hash of the text, commit, tensor -> hashes)"""
    table, tensors = {}, {}
    if os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if line.startswith("#"):
                    continue
                if line.startswith(" "):
                    tensors[words[0]] = words[1:]
                else:
                    tensors = {}
                    table[words[0]] = (words[1], words[2], tensors)
    return table


def write_table(table):
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(HEAD.format(seed=SEED, launches=LAUNCHES))
        for path, (text, commit, tensors) in sorted(table.items()):
            file.write(f"{path} {text} {commit}\n")
            for name, values in tensors.items():
                file.write(f"  {name} {' '.join(values)}\n")


def differences(known, now):
    """What differs between two tables of one graph's tensors."""
    found = []
    for name in sorted(known.keys() | now.keys()):
        if name not in now or name not in known:
            found.append(f"'{name}' is {'no longer' if name in known else 'newly'} among outputs and states")
        elif len(known[name]) != len(now[name]):
            found.append(f"'{name}' is on {len(now[name])} ranks, in the table on {len(known[name])}")
        else:
            ranks = [str(rank) for rank, pair in enumerate(zip(known[name], now[name])) if pair[0] != pair[1]]
            if ranks:
                found.append(f"'{name}' has other bits on rank {', '.join(ranks)}")
    return found


def head_commit():
    ran = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    parser.add_argument("--jobs", type=int, default=2, help="graphs at the same time")
    parser.add_argument("--only", default="", help="graphs whose path has this in it")
    parser.add_argument("--update", action="store_true", help="write what differs into the table")
    parser.add_argument("--made-by", help="with --update: the commit that built maco-run (default: the tree's)")
    args = parser.parse_args()

    paths = [path for path in graph_paths() if args.only in path]
    texts = {path: read_text(path) for path in paths}
    table, failed = read_table(), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {path: pool.submit(measure, args.maco_run, path, texts[path], SEED) for path in paths}
        for path in paths:
            tensors, wrong = running[path].result()
            text = digest(texts[path].encode())
            found = wrong.splitlines()
            if path not in table:
                found.append("is not in the table (--update adds it)")
            else:
                found += differences(table[path][2], tensors)
                if found and table[path][0] != text:
                    found.append("its text has changed since the table was made")
            if args.update and not wrong and (found or table[path][0] != text):
                table[path] = (text, args.made_by or head_commit(), tensors)
                print(f"{path}: updated")
            elif found:
                failed += 1
                print(f"{path}: " + "\n  ".join(found), flush=True)
    gone = [path for path in table if path not in graph_paths()]
    if args.update:
        write_table({path: entry for path, entry in table.items() if path not in gone})
    elif gone:
        failed += len(gone)
        print(f"in the table, and no graph any more: {', '.join(gone)}")
    # The comparison can fail: other values have other bits.
    first = next((path for path in paths if path in table), None)
    if first and not differences(table[first][2], measure(args.maco_run, first, texts[first], SEED + 1)[0]):
        failed += 1
        print(f"{first}: other values should have other hashes")
    print(f"{len(paths)} graphs, {sum(len(table[p][2]) for p in paths if p in table)} tensors, {failed} graphs differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
