#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_abi.sh: whether abidiff finds the C interface of include/ to be the newest version in this folder, as the compiler lays it out. That
# the older ones are compatible with it is the test abi.declarations'. Needs abidiff (Debian's abigail-tools). Declarations have no
# code, so each side becomes a library of pointers to its functions.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v abidiff >/dev/null; then
  echo "check_abi.sh: abidiff is not installed, so nothing was compared; install abigail-tools. Without it, the test abi.declarations compares the texts" >&2
  exit 1
fi
newest=$(printf '%s\n' "$here"/gigabar_1_*.h | sort -V | tail -n 1)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# library HEADER NAME: pointers to the functions that HEADER declares, with their types in the debugging information.
library() {
  {
    echo "#include \"$1\""
    grep -hoE '\bgigabar_[a-z0-9_]+\(' "$newest" | tr -d '(' | sort -u | while read -r function; do
      echo "const __typeof__(&$function) pointer_to_$function = 0;"
    done
  } >"$scratch/$2.c"
  "${CC:-cc}" -std=gnu11 -g -shared -fPIC -I "$here/../../include" "$scratch/$2.c" -o "$scratch/$2.so"
}

library gigabar.h now
library "$newest" described
abidiff "$scratch/described.so" "$scratch/now.so" || {
  echo "check_abi.sh: the interface is not the one of ${newest##*/}; tests/abi/declarations.py says what to do" >&2
  exit 1
}
