#!/usr/bin/env python3
"""The Python package on the GPUs of this machine: tests that need one, and the examples and the programs of the API document, on one GPU
and by torchrun on two.

    gpu.py LIBRARY     the file libmaco.so, or its folder

Closes with a line "N passed, M failed, K skipped"; status 77 where PyTorch or the library is missing.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# One runs macoc, which isn't there; the other takes two GPUs in one process, or none.
WITHOUT = {"first_steps.py", "own_collective.py"}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    library = Path(sys.argv[1])
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("pytest") is None or not library.exists():
        print(f"not tested here: PyTorch, pytest or {library} is missing")
        return 77
    import torch

    if not torch.cuda.is_available():
        print("not tested here: PyTorch sees no GPU")
        return 77
    environment = {**os.environ, "MACO_LIBRARY": str(library), "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}

    def run(command: list[str], seconds: int) -> tuple[int, str]:
        try:
            ran = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return 124, str(late)
        return ran.returncode, ran.stdout

    code, said = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests/test_cuda.py"], 240)
    print(said)
    counted = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", said)}
    passed, failed, skipped = counted.get("passed", 0), counted.get("failed", 0) + counted.get("error", 0), counted.get("skipped", 0)
    failed += code not in (0, 1) and not failed
    gpus = torch.cuda.device_count()
    document = ROOT / "python" / "tests" / "document_on_gpus.py"
    for example in (document, *sorted((ROOT / "examples" / "python").glob("*.py"))):
        if example.name in WITHOUT:
            continue
        commands = [[sys.executable, str(example)]]
        if gpus > 1:
            commands.append([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", str(example)])
        for command in commands:
            code, said = run(command, 300)
            print(f"$ {' '.join(command[1:])}\n{said}")
            passed += code == 0 and "not run:" not in said
            skipped += code == 0 and "not run:" in said
            failed += code != 0
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
