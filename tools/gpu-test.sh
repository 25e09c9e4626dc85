#!/usr/bin/env bash
# Everything that needs GPUs: kernels of all examples, profiles and faults on each way of placing ranks that there are GPUs for (the others
# are named as skipped), and random graphs, checked with the reference; more random graphs against NumPy (skipped where numpy, ml_dtypes and
# safetensors are missing); with --sanitize, accesses checked by compute-sanitizer: examples with all ranks on one GPU, and where there
# are more GPUs also with ranks that write to each other's. Says so, with status 77, where there is no GPU. Writes a log with commit,
# devices and the tests' names; a table of all parts closes it.
#
#   tools/gpu-test.sh [--log FILE] [--bin DIR] [--sample N] [--numpy N] [--sanitize]
#
# Kernels of users run where they were written before, since that needs Clang: tests/e2e/cuda_test.py --macoc build/bin/macoc --write
# BIN/../cuda. The applications of examples/host run where they were built: in BIN/../host. The Python package is tested over the library
# in BIN/../lib.
#
# --bin: where maco-run, maco-device-test and fuzz-graphs are (default: build/bin and build/tests, else build-gpu/bin); nothing is built
# here.
# --sample: every N-th of the random graphs that cover everything (default: 1, all of them; 0: none). --numpy: how many others (100).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=gpu-test.log bin="" sanitize=false sample=1 numpy=100
while (($#)); do
  case "$1" in
    --log) log=$2; shift ;;
    --bin) bin=$2; shift ;;
    --sample) sample=$2; shift ;;
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
summary=""
limit=540  # seconds of a part
# run NAME COMMAND...: a part of the tests; how many passed, failed and were skipped is what the command says last, else one did.
run() {
  local name=$1 code=0 begin=$SECONDS said counts result
  shift
  echo "\$ $*" >>"$log"
  said=$(mktemp)
  timeout "$limit" "$@" >"$said" 2>&1 || code=$?
  cat "$said" >>"$log"
  counts=$(tail -n 1 "$said" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped.*/\1 \2 \3/p')
  rm -f "$said"
  case $code in
    0) result=ok; counts=${counts:-1 0 0} ;;
    77) result=skipped; counts="0 0 1" ;;
    124) result="FAILED: not done within $limit s"; counts=${counts:-0 1 0} ;;
    *) result="FAILED: status $code"; counts=${counts:-0 1 0} ;;
  esac
  if ((code)); then echo "# status $code" >>"$log"; fi
  if ((code && code != 77)); then status=1; fi
  # shellcheck disable=SC2086 # three words
  summary+=$(printf '# %-44s %6s %6s %7s %6s s  %s' "$name" $counts $((SECONDS - begin)) "$result")$'\n'
}
gpus=$(nvidia-smi -L | wc -l) jobs=$(nproc)
# Ranks on each GPU when they are spread over all.
spread() { echo $((($(world_of "examples/graphs/$1") + gpus - 1) / gpus)); }
world_of() { sed -n 's/.*world[ "]*[=:] *\([0-9]*\).*/\1/p' "$1" | head -1; }

# Compiling takes longer than running: in several processes, of which one at a time runs its kernels.
# shellcheck disable=SC2317 # called by `run`
examples_and_faults() {
  local parts=$((jobs < 24 ? jobs : 24)) out code=0 k
  out=$(mktemp -d)
  local -a running=()
  for ((k = 0; k < parts; k++)); do
    "$bin/maco-device-test" --device cuda --examples examples/graphs --part "$k/$parts" --lock "$out/lock" >"$out/$k" 2>&1 &
    running+=($!)
  done
  for k in "${running[@]}"; do wait "$k" || code=$?; done
  grep -hvE '^[0-9]+ (GPUs?$|passed, )' "$out"/[0-9]*
  cat "$out"/[0-9]* | awk '/ passed, .* failed, .* skipped$/ { p += $1; f += $3; s += $5; n++ }
    END { f += '"$parts"' - n; printf "%d passed, %d failed, %d skipped\n", p, f, s }'
  rm -r "$out"
  return "$code"
}
export -f examples_and_faults
export bin jobs
limit=1800 run "examples and faults" bash -c examples_and_faults
run "memory of a hundred sessions" "$bin/maco-device-test" --device cuda --examples examples/graphs --only " sessions"
if [[ -d $bin/../cuda ]]; then
  run "kernels of users" python3 tests/e2e/cuda_test.py --maco-run "$bin/maco-run" --run "$bin/../cuda" --jobs 1
else
  run "kernels of users" bash -c 'echo "not tested here: there are none in BIN/../cuda"; exit 77'
fi
# shellcheck disable=SC2317 # called by `run`
applications() {
  "$host/decode_loop" cuda && "$host/two_ranks" cuda 2 || return 1
  if ((gpus > 1)); then "$host/two_ranks" cuda; fi
}
export -f applications
export gpus host=$bin/../host
if [[ -d $host ]]; then
  run "applications" bash -c applications
else
  run "applications" bash -c 'echo "not tested here: there are none in BIN/../host"; exit 77'
fi
library=$bin/../lib
[[ -d $library ]] || library=$bin
run "Python package" python3 python/tests/gpu.py "$library"
# As a user would: checked, then timed. Ranks share GPUs where there are too few.
for graph in tp_mlp.json llama70b_mlp_tp8.maco decode_layer.maco; do
  run "maco-run $graph" "$bin/maco-run" examples/graphs/$graph --device cuda --ranks-per-gpu "$(spread $graph)" --check --bench 200
done
# Ranks in processes of their own; those that share a GPU take turns.
run "tp_mlp.maco, a process a rank" "$bin/maco-run" examples/graphs/tp_mlp.maco --device cuda --processes \
  --ranks-per-gpu "$(spread tp_mlp.maco)" --check --launches 3
# Without a wrong bit, though one of two processes is stopped again and again.
if ((gpus > 1)); then
  run "stragglers, 10,000 launches" python3 tests/e2e/stragglers_test.py --maco-run "$bin/maco-run" --device cuda --launches 10000
else
  summary+=$(printf '# %-44s %6s %6s %7s %6s s  %s' "stragglers" 0 0 1 0 "skipped: 2 GPUs are needed")$'\n'
fi
# The log keeps the tables; that the stamps make sense is among the examples.
for graph in tp_mlp.maco decode_layer.maco; do
  run "profile of $graph" "$bin/maco-run" examples/graphs/$graph --device cuda --ranks-per-gpu "$(spread $graph)" --bench 20 --profile -
done
fuzz=$bin/fuzz-graphs
[[ -x $fuzz ]] || fuzz=${bin%bin}tests/fuzz-graphs
if ((sample > 0)); then run "random graphs" "$fuzz" --gpus "$gpus" --sample "$sample" --batch 4 --jobs "$jobs"; fi
if ((numpy > 0)); then
  python=.venv/bin/python
  [[ -x $python ]] || python=python3
  run "random graphs, NumPy" "$python" tests/e2e/numpy_test.py --maco-run "$bin/maco-run" --device cuda \
    --gpus "$gpus" --jobs $((jobs < 8 ? jobs : 8)) --seeds 1-"$numpy" --without send_recv
fi
if $sanitize; then
  # The sanitizer slows kernels down, so waits get more time.
  memcheck() {  # NAME GRAPH RANKS-PER-GPU [OPTION...]
    local name=$1 graph=$2 each=$3
    shift 3
    run "memcheck $name" compute-sanitizer --tool memcheck --error-exitcode 9 --leak-check no "$bin/maco-run" "examples/graphs/$graph" \
      --device cuda --ranks-per-gpu "$each" --check --timeout 120 "$@"
  }
  for graph in residual_norms.maco tp_mlp.maco decode_layer.maco allreduce.maco allgather.maco; do
    memcheck "$graph, one GPU" $graph "$(world_of examples/graphs/$graph)"
  done
  if ((gpus > 1)); then
    memcheck "tp_mlp.maco, 2 GPUs" tp_mlp.maco 1
    memcheck "llama70b_mlp_tp8.maco, $gpus GPUs" llama70b_mlp_tp8.maco "$(spread llama70b_mlp_tp8.maco)" --dim tokens=1
  else
    summary+=$(printf '# %-44s %6s %6s %7s %6s s  %s' "memcheck over several GPUs" 0 0 1 0 "skipped: 2 GPUs are needed")$'\n'
  fi
fi
{
  printf '# %-44s %6s %6s %7s\n' part passed failed skipped
  printf '%s' "$summary"
} >>"$log"
cat "$log"
exit "$status"
