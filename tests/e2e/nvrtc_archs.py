#!/usr/bin/env python3
"""Kernels compile, as they are, for every architecture and with every compiler that the project names.

  nvrtc_archs.py --macoc build/bin/macoc --maco-run build/bin/maco-run

What is emitted depends on the target (tiles, pages, SMs), so there is one emission a target: `all_ops.maco`, which has every op, for one
architecture of each kind that the device sources tell apart, and an example for the others; with MACO_TEST_MORE=1 both for each. With
NVRTC through macoc; the example for sm_70 with the NVRTC of CUDA 12, the last that has it; the default target's kernel.cu also with nvcc
and, for the CPU, with a host compiler, which runs and checks it. nvcc makes the same machine code whether it may contract products and sums
or not, of `chains.maco` too, whose fused ops invite it to. Status 77: there is no NVRTC.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from kept import identity, kept

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ALL_OPS = os.path.join(HERE, "all_ops.maco")
CHAINS = os.path.join(HERE, "chains.maco")
EXAMPLE = os.path.join(ROOT, "examples", "graphs", "decode_layer.maco")
COLLECTIVES = [os.path.join(ROOT, "examples", "collectives", name) for name in ("allreduce_doubling.maco", "allreduce_pkt_4.maco")]
TARGETS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"]
# Before 8.0 the device sources do without some instructions; the default target; the newest. ptxas_test.py has sm_80.
ALL_OPS_TARGETS = ["sm_75", "sm_90a", "sm_120"]
OLD = "sm_70"  # not in CUDA 13
EXAMPLE_TARGETS = ["sm_75", "sm_80", "sm_89", "sm_100a", "sm_120"]
ELF_MACHINE_CUDA = 190


def missing_ops(macoc):
    """Ops that can be compiled and that all_ops.maco does not have, but for kernels of users (cuda_test.py)."""
    with open(ALL_OPS, encoding="utf-8") as file:
        text = re.sub(r"#[^\n]*", "", file.read())
    kinds = re.findall(r"^(\w+)", subprocess.run([macoc, "--list-ops"], capture_output=True, text=True, check=True).stdout, re.M)
    return [kind for kind in kinds if kind != "cuda" and not re.search(rf"\b{kind}\(", text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("--maco-run", required=True)
    args = parser.parse_args()
    if missing := missing_ops(args.macoc):
        sys.exit(f"{ALL_OPS} does not have {', '.join(missing)}")

    with tempfile.TemporaryDirectory() as folder:
        probe = subprocess.run([args.macoc, os.path.join(ROOT, "examples", "graphs", "allreduce.maco"), "--emit=cubin", "-o",
                                os.path.join(folder, "probe")],
                               capture_output=True, text=True)
        if probe.returncode == 4 and "NVRTC was not found" in probe.stderr:
            print(f"skipped: {probe.stderr.strip()}")
            return 77

        def timed(command, more=None):
            start = time.monotonic()
            run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(more or {})})
            return run, time.monotonic() - start

        def nvrtc(graph, target, library=None):
            name = os.path.splitext(os.path.basename(graph))[0]
            product = os.path.join(folder, f"{name}.{target}.cubin")
            run, seconds = timed([args.macoc, graph, f"--target={target}", "--emit=cubin", "-o", product],
                                 {"MACO_NVRTC": library} if library else None)
            what = f"{name} for {target}, {'NVRTC of CUDA 12' if library else 'NVRTC'}"
            if run.returncode != 0:
                return False, f"{what}: status {run.returncode} after {seconds:.1f} s\n{run.stderr[-4000:]}"
            with open(product, "rb") as file:
                image = file.read()
            # A cubin is an ELF file for CUDA's machine.
            if image[:4] != b"\x7fELF" or int.from_bytes(image[18:20], "little") != ELF_MACHINE_CUDA:
                return False, f"{what}: the product is no cubin"
            return True, f"{what}: {seconds:.1f} s, {len(image)} bytes"

        kernel = os.path.join(folder, "kernel.cu")
        subprocess.run([args.macoc, ALL_OPS, "--target=sm_90a", "-o", kernel], check=True)
        chains = os.path.join(folder, "chains.cu")
        subprocess.run([args.macoc, CHAINS, "--target=sm_90a", "-o", chains], check=True)

        def nvcc(name, source):
            program = shutil.which("nvcc") or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/nvcc"))), None)
            if program is None:
                return True, f"{name} for sm_90a, nvcc: skipped, there is none"
            with open(source, encoding="utf-8") as file:
                text = file.read()
            beside = os.path.join(os.path.dirname(os.path.realpath(program)), "ptxas")
            inputs = ["nvcc", name, identity(program), identity(beside), text]
            return kept(inputs, lambda: both(name, source, program), good=lambda value: value[0])

        def both(name, source, program):
            images, total = [], 0.0
            for flags in ([], ["--fmad=false"]):
                product = os.path.join(folder, f"{name}{len(flags)}")
                # Through PTX, where products and sums that may be contracted look so: then ptxas too is seen to leave them alone.
                for step in (["-ptx", *flags, source, "-o", product + ".ptx"], ["-cubin", product + ".ptx", "-o", product + ".cubin"]):
                    run, seconds = timed([program, "-std=c++17", "-arch=sm_90a", *step])
                    total += seconds
                    if run.returncode != 0 or "warning" in run.stderr:  # a user reads these
                        return False, f"{name} for sm_90a, nvcc {' '.join(step)}: {run.stderr[-4000:]}"
                with open(product + ".cubin", "rb") as file:
                    images.append(file.read())
            if images[0] != images[1]:
                return False, f"{name} for sm_90a, nvcc: other machine code with --fmad=false, so that it contracted a product and a sum"
            return True, f"{name} for sm_90a, nvcc, the same with --fmad=false: {total:.1f} s"

        def host():
            run, seconds = timed([args.maco_run, kernel, "--device", "cpu", "--check"])
            said = run.stderr[-4000:] if run.returncode else ""
            return run.returncode == 0, f"all_ops for sm_90a, host compiler and check: {seconds:.1f} s{said}"

        def old():
            libraries = sorted(glob.glob(os.path.join(ROOT, ".venv", "cuda12", "nvidia", "*", "lib", "libnvrtc.so.12")))
            if not libraries:
                return True, f"{OLD}: skipped, there is no NVRTC of CUDA 12 in .venv/cuda12 (tools/setup.sh)"
            return nvrtc(ALL_OPS if more else EXAMPLE, OLD, libraries[0])

        more = os.environ.get("MACO_TEST_MORE")
        first = "sm_90a"  # the default target is compiled for in every run
        others = [old, lambda: nvcc("all_ops", kernel), lambda: nvcc("chains", chains), host]
        others += [lambda t=t: nvrtc(ALL_OPS, t) for t in (TARGETS if more else ALL_OPS_TARGETS) if t != first]
        others += [lambda t=t: nvrtc(EXAMPLE, t) for t in (TARGETS if more else EXAMPLE_TARGETS)]
        others += [lambda t=t, c=c: nvrtc(c, t) for c in COLLECTIVES for t in ("sm_75", "sm_90a")]
        jobs = [lambda: nvrtc(ALL_OPS, first), *others]
        failures = 0
        with ThreadPoolExecutor(2) as pool:
            for good, said in pool.map(lambda job: job(), jobs):
                print(said if good else f"FAILED: {said}", flush=True)
                failures += not good
    print(f"{len(jobs)} compilations, {failures} failures")
    if not more:
        left_out = ", ".join(target for target in [OLD, *TARGETS] if target not in ALL_OPS_TARGETS)
        print(f"skipped: all_ops for {left_out} (MACO_TEST_MORE=1 has all)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
