#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bare_tree.sh SUITE PACKAGES EXAMPLES SCRATCH: makes a bare tree of a Debian release, and installs, uses and removes the packages of the folder
# PACKAGES in it (in_the_tree.sh). Uses $CC. Exits with 77, and says why, where there can be no such tree.
set -euo pipefail
suite=$1 packages=$2 examples=$3 scratch=$4
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

skip() {
  echo "$*"
  exit 77
}

case $suite in
  bookworm) libc=2.36 ;;
  trixie) libc=2.41 ;;
esac
built=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
[ "$(printf '%s\n' "$built" "$libc" | sort -V | tail -n 1)" = "$libc" ] || skip "what is built here needs glibc $built, and $suite has $libc"
command -v mmdebstrap >/dev/null || skip "there is no tool that makes a bare tree (package mmdebstrap)"
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || skip "Debian's keys are not here (package debian-archive-keyring)"
if [ "$(id -u)" = 0 ]; then
  unshare --mount true 2>/dev/null || skip "root cannot mount here"
else
  { command -v newuidmap && unshare --user --map-auto --map-root-user true; } >/dev/null 2>&1 ||
    skip "it takes root, or a user namespace with more than one user (package uidmap, /etc/subuid)"
fi
# shellcheck source=scripts/debian_archive.sh
source "$here/../../scripts/debian_archive.sh"
[ -n "$archive" ] || skip "apt has no package lists of Debian here (apt-get update)"
rm -rf "$scratch"
mkdir -p "$scratch/given/packages" "$scratch/development" "$scratch/gdrcopy/DEBIAN" "$scratch/needs/DEBIAN"
/usr/lib/apt/apt-helper -o Acquire::Retries=1 -o Acquire::http::Timeout=20 download-file "$archive/dists/$suite/InRelease" \
  "$scratch/InRelease" >"$scratch/log" 2>&1 || skip "$archive cannot be reached: $(tail -n 1 "$scratch/log")"

cp "$packages"/*.deb "$scratch/given/packages"
cp "$here/in_the_tree.sh" "$scratch/given"

# Programs that were linked against the installed development files.
for deb in "$packages"/*.deb; do dpkg-deb -x "$deb" "$scratch/development"; done
root=$scratch/development/usr
libraries=$(dirname "$(find "$root/lib" -name libgigabar.so)")
for pair in flag_from_c:gigabar pin_stand_in:gdrapi; do
  "${CC:-cc}" -std=c11 "-I$root/include" "$examples/${pair%:*}.c" -o "$scratch/given/${pair%:*}" "-L$libraries" -l"${pair#*:}" -Wl,--allow-shlib-undefined
done

# What stands for GDRCopy's package, and for one that needs it.
architecture=$(dpkg --print-architecture)
describe() { # NAME VERSION LINE
  printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: Nobody <nobody@gigabar.invalid>\n%s\nDescription: for a test\n' \
    "$1" "$2" "$architecture" "$3"
}
describe libgdrapi 2.4-1 'Section: libs' >"$scratch/gdrcopy/DEBIAN/control"
describe needs-gdrapi 1 'Depends: libgdrapi (>= 2.3)' >"$scratch/needs/DEBIAN/control"
for file in $(cd "$scratch/development" && find . -name 'libgdrapi.so*'); do
  mkdir -p "$(dirname "$scratch/gdrcopy/$file")"
  echo 'of GDRCopy' >"$scratch/gdrcopy/$file"
done
dpkg-deb -b --root-owner-group "$scratch/gdrcopy" "$scratch/given/gdrcopy.deb" >/dev/null
dpkg-deb -b --root-owner-group "$scratch/needs" "$scratch/given/needs.deb" >/dev/null

# Nothing but the essential packages and apt, and no archive to install more from: what the packages need is in each Debian. dpkg need not
# wait for the disk after each file of a tree that is thrown away.
if ! mmdebstrap --variant=apt --format=null --dpkgopt=force-unsafe-io "${archive_options[@]}" \
  --customize-hook="sync-in '$scratch/given' /opt" --customize-hook='chroot "$1" /bin/bash /opt/in_the_tree.sh' \
  "$suite" - "$archive" >"$scratch/log" 2>&1; then
  grep '^E: \|^in the tree: ' "$scratch/log" || tail -n 40 "$scratch/log"
  exit 1
fi
grep '^in the tree: ' "$scratch/log"
