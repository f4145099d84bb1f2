#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run by bare_tree.sh in the tree: installs, uses and removes the packages of /opt/packages.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
names=(gigabar libgigabar1 libgigabar-dev libgdrapi2-gigabar)
version=$(dpkg-deb -f /opt/packages/gigabar_*.deb Version)

say() { echo "in the tree: $*"; }
fail() {
  say "$*"
  exit 1
}
apt=(apt-get -q -y --no-install-recommends -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null)

# Every file of the system, but for what dpkg and apt note, and caches.
files() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /opt -o -path /var/lib/dpkg -o -path /var/lib/apt \
    -o -path /var/cache -o -path /var/log -o -path /etc/ld.so.cache \) -prune -o -print | sort
}

# works COMMAND...: it ends with 0 in time. Its output is in /tmp/said.
works() { timeout 200 "$@" >/tmp/said 2>&1 || fail "$* ended with $?: $(cat /tmp/said)"; }
says() { grep -qF -- "$1" /tmp/said || fail "'$1' was not said, but: $(cat /tmp/said)"; }

files >/tmp/before

# --- In place of GDRCopy's package, on which another one depends.
works "${apt[@]}" install /opt/gdrcopy.deb /opt/needs.deb
works "${apt[@]}" install /opt/packages/libgdrapi2-gigabar_*.deb
[ "$(dpkg-query -W -f='${db:Status-Status}' needs-gdrapi)" = installed ] || fail "a package that needs libgdrapi was removed"
! dpkg-query -W -f='${db:Status-Status}\n' libgdrapi 2>/dev/null | grep -qx installed || fail "GDRCopy's package is still there"
say "libgdrapi2-gigabar took the place of libgdrapi"

# --- Installed.
works "${apt[@]}" install /opt/packages/*.deb
for name in "${names[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$name")" = "installed $version" ] || fail "$name is not installed"
done
works dpkg --verify "${names[@]}"
[ ! -s /tmp/said ] || fail "files are not as in their packages: $(cat /tmp/said)"

# --- Used.
works gigabar --version
says "${version%-*}"
export GIGABAR_STAND_IN=2
works gigabar info
says stand-in
works gigabar copylat -s 64 -w 10 -r 10
works gigabar streams -t 'gpu0->gpu1 ce bytes=1M iterations=2' --repeats 1
works gigabar latency -i 20 -x 2 -m 0:64
works /opt/flag_from_c
works /opt/pin_stand_in
works perl -MDynaLoader -e 'DynaLoader::dl_load_file("libgdrapi.so") or die DynaLoader::dl_error()' # as NCCL opens it
works bash -ec 'source /usr/share/bash-completion/completions/gigabar; complete -p gigabar'
say "the program, both libraries and the completion work"

# --- Removed.
works "${apt[@]}" purge "${names[@]}" needs-gdrapi
! ldconfig -p | grep -E 'libgigabar|libgdrapi' || fail "the loader's cache still names the libraries"
files >/tmp/after
left=$(comm -13 /tmp/before /tmp/after)
[ -z "$left" ] || fail "left behind: $left"
lost=$(comm -23 /tmp/before /tmp/after)
[ -z "$lost" ] || fail "gone: $lost"
say "nothing is left of the packages"
