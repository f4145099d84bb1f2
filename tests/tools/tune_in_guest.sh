#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gigabar tune over real RDMA, in a guest of tests/vm: a PCI BAR plays the GPU's memory, so that gdr is possible, and there are two
# rails. Argument: the program.
set -u
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GIGABAR_STAND_IN=1 GIGABAR_STAND_IN_MEMORY=/dev/fakegpu GIGABAR_TUNING=$folder/tuning.json HOME=$folder

fail() {
  echo "failed: $1"
  cat "$folder"/*.txt "$GIGABAR_TUNING" 2>/dev/null
  exit 1
}

expect() { grep -qE -- "$1" "$2" || fail "'$1' is not in $(basename "$2")"; }

for rails in rxe0 siw0 rxe0,rxe1; do
  "$program" tune --transport verbs --rails "$rails" -m 64K:128K -i 3 -x 1 --timeout 60 >"$folder/$rails.txt" 2>&1 ||
    fail "tune over $rails: status $?"
  for setting in chunk gdr_limit gdr_read_limit; do expect "^$setting: ([0-9]+ |unlimited)" "$folder/$rails.txt"; done
  expect ' +gdr us +staged us' "$folder/$rails.txt"
done
expect '^stripe: not measured: there is one rail' "$folder/rxe0.txt"
expect '^stripe: ([0-9]+ |unlimited)' "$folder/rxe0,rxe1.txt"
expect ' +one rail us +2 rails us' "$folder/rxe0,rxe1.txt"
[ "$(grep -c '"device"' "$GIGABAR_TUNING")" = 3 ] || fail 'not a pair for each set of rails'

# A fabric with these rails takes its pair; one with others does not.
latency=(latency --transport verbs -d cuda -m 8:8 -i 2 -x 0 --timeout 60)
"$program" "${latency[@]}" --rails siw0 >"$folder/taken.txt" 2>&1 || fail "latency over siw0: status $?"
for setting in chunk gdr_limit gdr_read_limit; do
  expect "^# $setting \(verbs, same host\): ([0-9]+|unlimited) \(tuned, $GIGABAR_TUNING\)" "$folder/taken.txt"
done
"$program" "${latency[@]}" --rails siw1 >"$folder/other.txt" 2>&1 || fail "latency over siw1: status $?"
grep -q tuned "$folder/other.txt" && fail 'rails that were not tuned are'
exit 0
