#!/usr/bin/env bash
# Compiles the tensor-parallel MLP of the examples into one kernel, runs it on two ranks and checks the result with the reference:
# on GPUs if the machine has them, else on the CPU target, which runs the same kernel source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh  # Clang, too, so that macoc takes kernels of users, where its packages can be had
cmake --preset default --log-level=WARNING
cmake --build --preset default --target macoc maco-run -j "$(nproc)"

graph=examples/graphs/tp_mlp.json world=2
mkdir -p build/demo
run() { printf '\n$ %s\n' "$*"; "$@"; }

gpus=0
if command -v nvidia-smi >/dev/null; then gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true); fi

cat <<EOF

One MLP of a transformer over $world ranks: each has half of the hidden layer, and an all-reduce adds the halves. macoc turns the graph into
one persistent kernel in which matrix products and communication are tasks on chosen SMs. Its report says which:
EOF
run build/bin/macoc "$graph" --report -o build/demo/tp_mlp.cu

if ((gpus >= world)); then
  printf '\nThis machine has %d GPUs, one for each rank. The kernel runs on them, and ' "$gpus"
  printf 'every output is compared with a plain float64 reference:\n'
  run build/bin/maco-run "$graph" --device cuda --check
  run build/bin/maco-run "$graph" --device cuda --bench 200
else
  printf '\nThis machine has %d GPUs and the graph has %d ranks, so the same kernel source is compiled for the CPU, ' "$gpus" "$world"
  printf 'with ranks and CTAs as threads.\nEvery output is compared with a plain float64 reference:\n'
  run build/bin/maco-run "$graph" --device cpu --check
fi
printf '\nThe kernel is in build/demo/tp_mlp.cu: readable CUDA, one file. Other graphs to try are in examples/graphs.\n'
