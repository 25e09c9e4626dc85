#!/usr/bin/env bash
# Sets up, builds and tests everything that needs no GPU, as CI does. Arguments go to ctest, such as -R unit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
jobs=$(nproc)
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

began=$SECONDS
cmake --preset default --log-level=WARNING "${launcher[@]}"
cmake --build --preset default -j "$jobs"
built=$((SECONDS - began))

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --test-dir build --output-on-failure --no-tests=error -j "$jobs" "$@" 2>&1 | tee "$log" || status=$?

# Where the time went, longest first; ctest's own summary comes last.
printf '\nBuilt in %d s. Seconds by suite:\n' "$built"
sed -nE 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: +([^ ]+) \.+ *\**(.*[^ ]) +([0-9.]+) sec.*|\3 \1 \2|p' "$log" | sort -rn |
  awk '{ seconds = $1; name = $2; $1 = $2 = ""; printf "%9.1f  %-36s%s\n", seconds, name, $0 }'
echo
sed -n '/tests passed,/p; /^Total Test time/p' "$log"
exit "$status"
