#!/usr/bin/env bash
# Builds and tests what needs no GPU. Arguments behind the tier go to ctest, such as -R unit.
#
#   tools/test.sh quick   before a commit: builds, and leaves out what takes long
#   tools/test.sh         as CI: sets up, and runs a seventh of the suites that take longest; which one depends on the commit
#   tools/test.sh more    before a release: all of them, in full
#
# MACO_TEST_PART=2/7 chooses the part of the suites that take longest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tier=full
case "${1:-}" in
  quick | more) tier=$1; shift ;;
  -h | --help) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
esac

[[ $tier == quick ]] || tools/setup.sh
jobs=$(nproc)

commit=$(git rev-parse --short=6 HEAD 2>/dev/null) || commit=0
case $tier in
  quick) part=1/7; set -- -LE long "$@" ;;
  more) part=1/1 ;;
  full) part=$((16#$commit % 7 + 1))/7 ;;
esac
export MACO_TEST_PART=${MACO_TEST_PART:-$part}

began=$SECONDS
configured=$(cmake --preset default) || { echo "$configured"; exit 1; }
cmake --build --preset default -j "$jobs"
built=$((SECONDS - began))
# The Python package as users install it; its tests say so where it isn't there.
if [[ $tier != quick && -x .venv/bin/python ]]; then tools/wheel.sh || exit 1; fi

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
