#!/usr/bin/env python3
"""Ops that only move elements keep their bits, those of every NaN too: all patterns of 8 and 16 bits, and f32 with all upper halves.

  bits_test.py --maco-run build/bin/maco-run

Small tensors travel between ranks in packets, large ones as plain stores.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

WORLD = 2
DTYPES = {"bf16": ("BF16", 2), "f16": ("F16", 2), "f8e4m3": ("F8_E4M3", 1), "f8e5m2": ("F8_E5M2", 1), "u8": ("U8", 1), "f32": ("F32", 4),
          "i32": ("I32", 4)}
GRAPH = """graph bits(world = {world}) {{
  input x : {dtype}[{rows}, {cols}]
  output copied = copy(x)
  c = copy(x)
  output copied_twice = copy(c)
  d = copy(x)
  output cast_to_itself = cast(d, dtype = {dtype})
  output turned = reshape(x, shape = [{cols}, {rows}])
  output gathered = allgather(x)
  output passed_on = allgather(x, algorithm = ring)
  output exchanged = alltoall(x)
  output sent = broadcast(x, root = 1)
  output shifted = ring_shift(x)
  send(x, dst = (rank + 1) % world)
  output received = recv(src = (rank - 1) % world, shape = [{rows}, {cols}], dtype = {dtype})
}}
"""


def patterns(size):
    if size == 1:
        return bytes(range(256))
    upper = struct.pack("<65536H", *range(65536))
    return upper if size == 2 else b"".join(b"\x01\x00" + upper[i : i + 2] for i in range(0, len(upper), 2))


def save(path, dtype, shape, data):
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    tensors = {name: t["data_offsets"] for name, t in header.items() if name != "__metadata__"}
    return {name: data[8 + size + begin : 8 + size + end] for name, (begin, end) in tensors.items()}


def expected(x, rank):
    own, half = x[rank], len(x[rank]) // WORLD
    same = dict.fromkeys(("copied", "copied_twice", "cast_to_itself", "turned"), own)
    return {**same, **dict.fromkeys(("gathered", "passed_on"), b"".join(x)),
            "exchanged": b"".join(other[rank * half : (rank + 1) * half] for other in x),
            "sent": x[1], "shifted": x[(rank - 1) % WORLD], "received": x[(rank - 1) % WORLD]}


def differences(run, folder, dtype, bytes_wanted):
    name, size = DTYPES[dtype]
    data = patterns(size)
    data *= max(1, bytes_wanted // len(data))
    # Each rank has other values at a place.
    x = [data[rank * 16 :] + data[: rank * 16] for rank in range(WORLD)]
    rows, cols = 4, len(data) // size // 4
    graph, inputs, outputs = (os.path.join(folder, file) for file in ("g.maco", "in.{rank}", "out.{rank}"))
    with open(graph, "w", encoding="utf-8") as file:
        file.write(GRAPH.format(world=WORLD, dtype=dtype, rows=rows, cols=cols))
    for rank in range(WORLD):
        save(inputs.format(rank=rank), name, [rows, cols], x[rank])
    found = []
    for more in ([], ["--no-fuse"]):
        subprocess.run([run, graph, "--device", "cpu", "-q", "--inputs", inputs, "--outputs", outputs, *more], check=True)
        for rank in range(WORLD):
            got = load(outputs.format(rank=rank))
            for tensor, want in expected(x, rank).items():
                if got[tensor] == want:
                    continue
                wrong = [i for i in range(0, len(want), size) if got[tensor][i : i + size] != want[i : i + size]]
                i = wrong[0] if wrong else len(want)
                found.append(f"{dtype} {len(data)} bytes, '{tensor}' on rank {rank} {' '.join(more)}: {len(wrong)} elements, the first "
                             f"{want[i : i + size][::-1].hex()}, now {got[tensor][i : i + size][::-1].hex()}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            for bytes_wanted in (0, 1 << 20):
                found += differences(args.maco_run, folder, dtype, bytes_wanted)
    print("\n".join(found) or f"{len(DTYPES)} dtypes: all bits are kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
