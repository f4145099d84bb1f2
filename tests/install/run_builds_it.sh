#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_builds_it.sh BUILD NINJA: whether `./run` builds every file of the build that `cmake --install` installs.
set -euo pipefail
build=$1 ninja=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra targets < <(sed -n 's/^set_up \([a-z_ ]*\).*/\1/p' run)
[ ${#targets[@]} -gt 0 ] || { echo "run names no target" >&2 && exit 1; }
# Files of the build that are installed, and that a rule of the build makes; links are made with what they lead to.
installed=$(grep -rhoE "\"$build/[^\"]+\"" --include=cmake_install.cmake "$build" | tr -d '"' | sed "s|^$build/||" | sort -u)
made=$("$ninja" -C "$build" -t targets all | sed -n "/ CMAKE_SYMLINK_LIBRARY$/d; s/: [A-Z].*//p" | sed "s|^$build/||" | sort -u)
wanted=$(comm -12 <(echo "$installed") <(echo "$made"))
[ "$(wc -l <<<"$wanted")" -ge 5 ] || { echo "only these files would be installed: $wanted" >&2 && exit 1; }
missing=$(comm -23 <(echo "$wanted") <("$ninja" -C "$build" -t graph "${targets[@]}" | sed -n 's/.*label="\([^"]*\)".*/\1/p' | sed "s|^$build/||" | sort -u))
[ -z "$missing" ] || { echo "./run does not build what is installed: $missing" >&2 && exit 1; }
