#!/usr/bin/env bash
# Builds and tests what needs no GPU. Arguments behind the tier go to ctest, such as -R unit.
#
#   tools/test.sh quick   before a commit: builds, and leaves out what takes long
#   tools/test.sh         as CI: sets up, and runs every suite; of sweeps over what is made up a fixed share
#   tools/test.sh more    before a release: the sweeps in full (MACO_TEST_MORE), and more random cases (MACO_PROOFS_MORE)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tier=full
case "${1:-}" in
  quick | more) tier=$1; shift ;;
  -h | --help) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
esac

[[ $tier == quick ]] || tools/setup.sh
jobs=$(nproc)

case $tier in
  quick) set -- -LE long "$@" ;;
  more) export MACO_TEST_MORE=1 MACO_PROOFS_MORE=${MACO_PROOFS_MORE:-4} ;;
esac

began=$SECONDS
configured=$(cmake --preset default) || { echo "$configured"; exit 1; }
cmake --build --preset default -j "$jobs"
built=$((SECONDS - began))
# The Python package as users install it; its tests say so where it isn't there.
if [[ $tier != quick && -x .venv/bin/python ]]; then tools/wheel.sh || exit 1; fi

log=$(mktemp) used=$(mktemp)
trap 'rm -f "$log" "$used"' EXIT
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
times >"$used"  # the second line: minutes and seconds of what this shell started, by itself and in the system
busy=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", ($1 + $3) * 60 + $2 + $4 }' "$used")
printf '\nBuilt in %d s; build and tests took %d s of one processor, on %d. Seconds by suite:\n' "$built" "$busy" "$jobs"
sed -nE 's|^ *[0-9]+/[0-9]+ Test +#[0-9]+: +([^ ]+) \.+ *\**(.*[^ ]) +([0-9.]+) sec.*|\3 \1 \2|p' "$log" | sort -rn |
  awk '{ seconds = $1; name = $2; $1 = $2 = ""; printf "%9.1f  %-36s%s\n", seconds, name, $0 }'
echo
sed -n '/tests passed,/p; /^Total Test time/p' "$log"
exit "$status"
