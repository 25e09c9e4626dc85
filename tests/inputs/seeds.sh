#!/usr/bin/env bash
# Writes Programs and manifests of small graphs, as the compiler makes them now: seeds.sh BIN GRAPHS OUT
set -euo pipefail
bin=$1 graphs=$2 out=$3
rm -rf "$out"
mkdir -p "$out/program" "$out/manifest"
for graph in allreduce alltoall phases_roles; do
  "$bin/macoc" "$graphs/$graph.maco" --sms 8 --emit program -o "$out/program/$graph"
  "$bin/macoc" "$graphs/$graph.maco" --sms 8 --emit manifest -o "$out/manifest/$graph"
  "$bin/maco-opt" "$graphs/$graph.maco" --sms 8 --to tile -o "$out/program/$graph.tiled"
done
