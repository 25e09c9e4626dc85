#!/usr/bin/env python3
"""How compiling grows with the number of layers: macoc with all proofs, the size of kernel.cu, NVRTC.

  compile_growth.py [--macoc build/bin/macoc] [--graph examples/graphs/llama70b_decode_tp8.maco] [--layers 1,2,4,8,16,32,80] [--target sm_90a]
"""

import argparse
import os
import re
import subprocess
import tempfile
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", default="build/bin/macoc")
    parser.add_argument("--graph", default="examples/graphs/llama70b_decode_tp8.maco")
    parser.add_argument("--layers", default="1,2,4,8,16,32,80")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--no-nvrtc", action="store_true")
    args = parser.parse_args()
    text = open(args.graph).read()
    print(f"{'layers':>6} {'tasks':>8} {'macoc s':>8} {'of it verify':>12} {'kernel.cu MB':>13} {'NVRTC s':>8} {'cubin MB':>9}")
    for layers in (int(n) for n in args.layers.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            graph, kernel, cubin = (os.path.join(folder, f) for f in ("g.maco", "k.cu", "k.cubin"))
            with open(graph, "w") as f:
                f.write(re.sub(r"0\.\.80", f"0..{layers}", text).replace("x_80", f"x_{layers}"))
            begin = time.monotonic()
            ran = subprocess.run([args.macoc, graph, "--target", args.target, "-o", kernel, "--report", "--time-passes"], check=True, text=True,
                                 stderr=subprocess.PIPE)
            seconds = time.monotonic() - begin
            verify = float(re.search(r"([\d.]+)  verify", ran.stderr).group(1)) / 1e3
            tasks = sum(int(n) for n in re.findall(r"^(?:compute|comm) +\S+ +\d+ +(\d+)", ran.stderr, re.M))
            nvrtc = size = 0.0
            if not args.no_nvrtc:
                begin = time.monotonic()
                subprocess.run([args.macoc, graph, "--target", args.target, "--emit=cubin", "-o", cubin], check=True, stderr=subprocess.DEVNULL,
                               env=dict(os.environ, MACO_CACHE_DIR=""))
                nvrtc = time.monotonic() - begin - seconds
                size = os.path.getsize(cubin) / 1e6
            print(f"{layers:6} {tasks:8} {seconds:8.2f} {verify:12.2f} {os.path.getsize(kernel) / 1e6:13.2f} {nvrtc:8.2f} {size:9.2f}", flush=True)


if __name__ == "__main__":
    main()
