#!/usr/bin/env bash
# Sets up, builds and tests everything that needs no GPU, as CI does. Arguments go to ctest, such as -R unit.
# Of what takes longest (tests/README.md) it runs a seventh, which one depends on the commit; all of it with MACO_TEST_PART=1/1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
jobs=$(nproc)

commit=$(git rev-parse --short=6 HEAD 2>/dev/null) || commit=0
export MACO_TEST_PART=${MACO_TEST_PART:-$((16#$commit % 7 + 1))/7}

began=$SECONDS
configured=$(cmake --preset default) || { echo "$configured"; exit 1; }
cmake --build --preset default -j "$jobs"
built=$((SECONDS - began))
# The Python package as users install it; its tests say so where it isn't there.
if [[ -x .venv/bin/python ]]; then tools/wheel.sh || exit 1; fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --test-dir build --output-on-failure --no-tests=error -j "$jobs" "$@" 2>&1 | tee "$log" || status=$?

# What passing tests print: output TEST... is what these said, reasons is what was skipped and why, or not even configured.
said=build/Testing/Temporary/LastTest.log
output() {
  awk -v tests=" $* " '
    /^[0-9]+\/[0-9]+ Test: / { name = $3; wanted = index(tests, " " name " ") }
    /^<end of output>/ { inside = 0 }
    inside && wanted { print }
    /^Output:$/ { inside = 1; getline; if (wanted) print "\n== " name }' "$said"
}
reasons() {
  awk '
    /^[0-9]+\/[0-9]+ Test: / { name = $3 }
    /^Output:$/ { inside = 1; getline; next }
    /^<end of output>/ { inside = 0 }
    inside && /([Ss]kipped|SKIPPED)(:|,|  )|not tested here: / { sub(/^ +/, ""); printf "  %-18s %s\n", name, $0 }' "$said"
  sed -n 's/^-- no test /  /p' <<<"$configured"
}

# Tables, what was skipped, where the time went, longest first; ctest's own summary comes last.
if [[ -f $said ]]; then
  output fuzz-graphs fuzz-collectives e2e-numpy
  skipped=$(reasons)
  printf '\nSkipped:\n%s\n' "${skipped:-  nothing}"
fi
printf '\nPart %s of what takes longest. Built in %d s. Seconds by suite:\n' "$MACO_TEST_PART" "$built"
sed -nE 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: +([^ ]+) \.+ *\**(.*[^ ]) +([0-9.]+) sec.*|\3 \1 \2|p' "$log" | sort -rn |
  awk '{ seconds = $1; name = $2; $1 = $2 = ""; printf "%9.1f  %-36s%s\n", seconds, name, $0 }'
echo
sed -n '/tests passed,/p; /^Total Test time/p' "$log"
exit "$status"
