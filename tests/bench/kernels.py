"""Compares twelve kernels of users as one graph (kernels.maco) with a CUDA graph of the originals (kernels.cu), on the same inputs: whether
their results have the same bits, and how long both take. Where MACO has no Clang, --kernel names the file that
`macoc kernels.maco -o kernel.cu` wrote elsewhere."""
import argparse
import json
import os
import re
import struct
import subprocess
import tempfile

import gpu_bench

HERE = os.path.dirname(os.path.abspath(__file__))
GRAPH = os.path.join(HERE, "kernels.maco")
OF_TYPE = {"f32": ("F32", 4), "i32": ("I32", 4), "u8": ("U8", 1)}


def inputs():
    """{name: (dtype, shape, bytes)} of what isn't an output; values that differ, and ids of rows that are and aren't there."""
    import random
    values = random.Random(1)
    made = {}
    with open(GRAPH, encoding="utf-8") as file:
        text = file.read()
    for name, dtype, shape in re.findall(r"^  (?:input|param) (\w+) : (\w+)\[([0-9, ]+)\]", text, re.M):
        shape = [int(n) for n in shape.split(",")]
        count = 1
        for n in shape:
            count *= n
        if dtype == "f32":
            data = struct.pack(f"<{count}f", *(values.uniform(-2, 2) for _ in range(count)))
        elif dtype == "i32":
            data = struct.pack(f"<{count}i", *(values.randrange(-8, 1032) for _ in range(count)))
        else:
            data = values.randbytes(count)
        made[name] = (dtype, shape, data)
    made["counts"] = ("i32", [16], bytes(64))
    return made


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": OF_TYPE[dtype][0], "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin", help="where maco-run is")
    parser.add_argument("--json", help="where the figures go, with command, device and date")
    parser.add_argument("--launches", type=int, default=100, help="of which the median is taken")
    parser.add_argument("--options", default="", help="for maco-run")
    parser.add_argument("--kernel", default=GRAPH, help="kernel.cu, or the graph")
    parser.add_argument("--nvcc", default="nvcc", help="which compiles the originals")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    with tempfile.TemporaryDirectory() as folder:
        tensors = inputs()
        write_safetensors(os.path.join(folder, "in.safetensors"), tensors)
        for name, (_, _, data) in tensors.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        maco = [os.path.join(args.bin, "maco-run"), args.kernel, "--device", "cuda", "--inputs", os.path.join(folder, "in.safetensors")]
        run(*maco, "--outputs", os.path.join(folder, "out.safetensors"), *args.options.split())
        ours = read_safetensors(os.path.join(folder, "out.safetensors"))
        timed = re.search(r"median ([0-9.]+) us", run(*maco, "--bench", str(args.launches), *args.options.split()))
        original = os.path.join(folder, "originals")
        run(args.nvcc, "-O3", "-std=c++17", "-arch=native", "-w", os.path.join(HERE, "kernels.cu"), "-o", original)
        theirs = dict(re.findall(r"(\w+)_us ([0-9.]+)", run(original, folder, str(args.launches))))
        other = []
        for name in ours:
            with open(os.path.join(folder, name), "rb") as file:
                if file.read() != ours[name]:
                    other.append(name)
    print(f"{len(ours) - len(other)} of {len(ours)} results have the originals' bits" + (f"; not: {', '.join(other)}" if other else ""))
    for way in ("behind_each_other", "side_by_side"):
        bench.add(originals=way, maco_us=float(timed[1]), peer_us=float(theirs[way]))
    bench.finish(other_bits=other)
    raise SystemExit(1 if other else 0)


if __name__ == "__main__":
    main()
