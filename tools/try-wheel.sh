#!/usr/bin/env bash
# Tries the newest wheel of build/wheels (tools/wheel.sh makes it) in a fresh environment of a Python: how long the import takes,
# `maco info`, an example compiled for the CPU target and for a GPU and run on the CPU target, a session over NumPy, then tests of the
# package.
#
#   tools/try-wheel.sh [--torch VERSION] [--wheel FILE] [--keep FOLDER] PYTHON [ARGUMENTS OF PYTEST]
#
#   --torch VERSION  also with that PyTorch; "newest" is the newest that there is for this Python. Without it tests of PyTorch are skipped
#   --wheel FILE     that wheel in place of the newest, such as one that `auditwheel repair` made for other distributions
#   --keep FOLDER    makes the environment in that folder, which must not exist, and leaves it; else it is removed at the end
#
# PyTorch comes without its gigabytes of CUDA's libraries where a CUDA toolkit has them, as in tools/setup.sh. Without arguments of pytest
# all of python/tests runs, which takes minutes. Status 0: all was right; 1: something failed; 2: a wrong command line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

usage() { sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit "$1"; }
torch="" keep="" wheel=""
while (($#)); do
  case "$1" in
    --torch) torch=${2-}; [[ $torch =~ ^(newest|[0-9][0-9.]*)$ ]] || usage 2; shift 2 ;;
    --wheel) wheel=${2-}; [[ -f $wheel ]] || usage 2; shift 2 ;;
    --keep) keep=${2-}; [[ -n $keep && ! -e $keep ]] || usage 2; shift 2 ;;
    --help) usage 0 ;;
    -*) usage 2 ;;
    *) break ;;
  esac
done
(($#)) || usage 2
interpreter=$1
shift

if [[ -z $wheel ]]; then
  for file in build/wheels/maco-*.whl; do if [[ -z $wheel || $file -nt $wheel ]]; then wheel=$file; fi; done
fi
[[ -f $wheel ]] || { echo 'try-wheel: there is no wheel in build/wheels: tools/wheel.sh makes it' >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=${keep:-$work/environment}
"$interpreter" -m venv "$environment"
environment=$(cd "$environment" && pwd)
python=$environment/bin/python
unset PYTHONPATH PYTHONHOME MACO_LIBRARY
export MACO_CACHE_DIR=$work/cache MACO_DEVICE=cpu
install() { "$python" -m pip install -q --disable-pip-version-check "$@"; }

failed=()
# check NAME COMMAND...: says what the command printed only where it fails. Run in a folder from which the checkout can't be imported.
check() {
  local name=$1
  shift
  if (cd "$work" && "$@") >"$work/said" 2>&1; then
    printf 'right   %s\n' "$name"
  else
    printf 'FAILED  %s: status %d\n' "$name" $?
    tail -n 40 "$work/said"
    failed+=("$name")
  fi
}

install --no-deps "$wheel"
printf '%s\n' "$("$python" -c 'import sys; print("Python", sys.version)') with $(basename "$wheel")"

graph=$root/examples/graphs/tp_mlp.json
cat >"$work/imports.py" <<'END'
import time
began = time.perf_counter()
import maco
print(f"        import maco: {time.perf_counter() - began:.2f} s")
import sys
assert "torch" not in sys.modules and "numpy" not in sys.modules
assert maco.__file__.startswith(sys.prefix), maco.__file__
END
check 'import' "$python" "$work/imports.py"
cat "$work/said"
check 'maco info' "$environment/bin/maco" info
check 'compile for the CPU target' "$python" -m maco compile "$graph" --target cpu -o cpu.cu
check 'compile for sm_90a' "$python" -m maco compile "$graph" --target sm_90a -o gpu.cu
check 'run on the CPU target' "$environment/bin/maco" run "$graph" --device cpu --check

install numpy 'pytest>=8'
cat >"$work/session.py" <<'END'
import maco
import numpy as np

graph = maco.Graph("double")
x = graph.input("x", "f32", [4, 8])
graph.output("y", graph.add(x, x))
with maco.Session(graph.compile(target="cpu")) as session:
    session.allocate()
    ones = np.ones((4, 8), np.float32)
    session.write("x", ones)
    session.run()
    np.testing.assert_array_equal(session.read("y"), 2 * ones)
END
check 'session over NumPy' "$python" "$work/session.py"

if [[ -n $torch ]]; then
  wanted=torch; [[ $torch == newest ]] || wanted=torch==$torch
  sed "s/^torch==.*/$wanted/" tools/requirements-torch.txt >"$work/requirements.txt"
  install --no-deps -r "$work/requirements.txt"
  # Of what a toolkit has not, or has older: the versions that this PyTorch wants.
  cat >"$work/pinned.py" <<'END'
import importlib.metadata
import re
for one in importlib.metadata.requires("torch") or ():
    if re.match("nvidia-(nccl|cusparselt|nvshmem)", one):
        print(re.sub("[() ]", "", one.partition(";")[0]))
END
  mapfile -t pinned < <("$python" "$work/pinned.py")
  if ((${#pinned[@]})); then install --no-deps "${pinned[@]}"; fi
  if ! "$python" -c 'import torch' 2>"$work/said"; then
    printf '        %s; installing all that PyTorch depends on\n' "$(tail -n 1 "$work/said")"
    install "$wanted"
  fi
  install ml_dtypes
  check 'torch.compile' "$python" -c '
import torch
x = torch.randn(4, 8, requires_grad=True)
y = torch.compile(lambda x: torch.relu(x @ x.T).sum(), backend="maco")(x)
y.backward()
assert x.grad is not None and "maco" in torch._dynamo.list_backends()'
fi

tests=("${@:-python/tests}")
listed=$("$python" -m pip list --disable-pip-version-check 2>/dev/null | grep -iE '^(torch|numpy|ml_dtypes|pytest) ' | tr -s ' ')
printf '        %s\n' "$(paste -sd, - <<<"$listed")"
if ! "$python" -m pytest -q "${tests[@]}"; then failed+=(pytest); fi

if ((${#failed[@]})); then printf 'failed: %s\n' "${failed[*]}"; exit 1; fi
echo 'all right'
