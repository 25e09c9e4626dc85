#!/usr/bin/env bash
# Everything that needs GPUs: kernels of all examples and faults on each way of placing ranks, and random graphs, checked with the
# reference; more random graphs against NumPy (skipped where numpy, ml_dtypes and safetensors are missing); memory checked by
# compute-sanitizer. Says so, with status 77, where there is no GPU. Writes a log with commit, devices and the tests' names.
#
#   tools/gpu-test.sh [--log FILE] [--bin DIR] [--random N] [--numpy N] [--sanitize]
#
# --bin: where maco-run, maco-device-test and fuzz-graphs are (default: build/bin and build/tests, else build-gpu/bin); nothing is built here.
# --random, --numpy: how many random graphs (defaults: 308, those that cover everything; 100).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=gpu-test.log bin="" sanitize=false random=308 numpy=100
while (($#)); do
  case "$1" in
    --log) log=$2; shift ;;
    --bin) bin=$2; shift ;;
    --random) random=$2; shift ;;
    --numpy) numpy=$2; shift ;;
    --sanitize) sanitize=true ;;
    *) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift
done
for candidate in build/bin build-gpu/bin; do [[ -n $bin || ! -x $candidate/maco-device-test ]] || bin=$candidate; done
if [[ -z $bin ]]; then echo "gpu-test: build maco-device-test first (cmake --preset gpu && cmake --build --preset gpu)" >&2; exit 2; fi

# All modules are loaded before any kernel spins for a peer; NVLink multicast isn't used.
export CUDA_MODULE_LOADING=EAGER NCCL_NVLS_ENABLE=0

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu-test: SKIPPED: this machine has no GPU (nvidia-smi finds none)" | tee "$log"
  exit 77
fi
{
  echo "# tools/gpu-test.sh"
  echo "# date    $(date -u +%F)"
  echo "# commit  ${MACO_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}"
  nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader | sed 's/^/# device  /'
} >"$log"

status=0
run() {
  echo "\$ $*" >>"$log"
  local code=0
  timeout 540 "$@" >>"$log" 2>&1 || code=$?
  if ((code == 77)); then echo "# skipped" >>"$log"; elif ((code)); then status=1; fi
  if ((code)); then echo "# status $code" >>"$log"; fi
}
gpus=$(nvidia-smi -L | wc -l)
world_of() { sed -n 's/.*world[ "]*[=:] *\([0-9]*\).*/\1/p' "$1" | head -1; }

run "$bin/maco-device-test" --device cuda --examples examples/graphs
# As a user would: checked, then timed. Ranks share GPUs where there are too few.
for graph in tp_mlp.json llama70b_mlp_tp8.maco decode_layer.maco; do
  world=$(world_of examples/graphs/$graph)
  each=$(((world + gpus - 1) / gpus))
  run "$bin/maco-run" examples/graphs/$graph --device cuda --ranks-per-gpu "$each" --check --bench 200
done
fuzz=$bin/fuzz-graphs
[[ -x $fuzz ]] || fuzz=${bin%bin}tests/fuzz-graphs
jobs=$(nproc)
if ((random > 0)); then run "$fuzz" --gpus "$gpus" --seeds 0..$((random - 1)) --batch 4 --jobs "$jobs"; fi
if ((numpy > 0)); then
  python=.venv/bin/python
  [[ -x $python ]] || python=python3
  run "$python" tests/e2e/numpy_test.py --maco-run "$bin/maco-run" --device cuda --gpus "$gpus" --jobs $((jobs < 8 ? jobs : 8)) --seeds 1-"$numpy" \
    --without send_recv
fi
if $sanitize; then
  # One rank a context: the sanitizer slows kernels down, so waits get more time.
  for graph in residual_norms tp_mlp decode_layer allreduce allgather; do
    run compute-sanitizer --tool memcheck --error-exitcode 9 --leak-check no "$bin/maco-run" examples/graphs/$graph.maco --device cuda \
      --ranks-per-gpu "$(world_of examples/graphs/$graph.maco)" --check --timeout 120
  done
fi
cat "$log"
exit "$status"
