"""The first call of a compiled layer of Llama, in processes of their own: with an empty cache, and with what that one left there.

  first_call.py [--device cuda|cpu] [--hidden 2048]
"""

import argparse
import os
import subprocess
import sys
import tempfile

ONE = """
import sys, time
begin = time.perf_counter()
import torch
import maco
import python_calls
imported = time.perf_counter() - begin
device, hidden = sys.argv[1], int(sys.argv[2])
layer = python_calls.Layer(hidden, hidden // 64, hidden // 256, 64, 4 * hidden, 1024).to(device).to(torch.bfloat16).eval()
x, at = torch.randn(1, hidden, device=device, dtype=torch.bfloat16), torch.tensor([100], device=device)
with torch.no_grad():
    begin = time.perf_counter()
    y = maco.compile(layer)(x, at)
    y.float().sum().item()
    print(f"{imported:.2f} s to import, {time.perf_counter() - begin:.2f} s for the first call")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--hidden", type=int, default=2048)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        paths = os.pathsep.join(filter(None, (os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": paths}
        for how in ("an empty cache", "what that left in it", "the same again"):
            command = [sys.executable, "-c", ONE, given.device, str(given.hidden)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{how}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
