#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# main_test.sh PROGRAM: a test program of which no test ran fails and says why, and so does one that skipped a test in a guest.
set -euo pipefail
unset GIGABAR_VM_RANK GTEST_BRIEF

# expect CODE TEXT COMMAND...
expect() {
  local code=$1 text=$2 status=0 output
  shift 2
  output=$("$@" 2>&1) || status=$?
  if [ $status != "$code" ] || [[ $output != *"$text"* ]]; then
    printf 'exit code %s, not %s with "%s": %s\n%s\n' "$status" "$code" "$text" "$*" "$output"
    exit 1
  fi
}

expect 0 "1 test, listed below" "$1"
expect 0 "MainSkips" "$1" --gtest_list_tests
expect 1 "no test ran: the filter names none" "$1" --gtest_filter=NoSuchTest.*
expect 1 "no test ran: all were skipped" "$1" --gtest_filter=MainSkips.*
expect 1 "a test was skipped in a guest" env GIGABAR_VM_RANK=0 "$1"
expect 0 "PASSED" env GIGABAR_VM_RANK=0 "$1" --gtest_filter=MainPasses.*
