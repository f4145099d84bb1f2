#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh BUILD SCRATCH VERSION: makes the Debian packages of a finished build and looks at what is in them. Uses $CPACK.
set -euo pipefail
build=$1 scratch=$2 version=$3-1
rm -rf "$scratch"
mkdir -p "$scratch"

fail() {
  echo "packages: $*" >&2
  exit 1
}

(cd "$build" && "$CPACK" -G DEB -B "$scratch") >"$scratch/log" 2>&1 || fail "cpack failed: $(cat "$scratch/log")"
architecture=$(dpkg --print-architecture)

# package NAME: its file.
package() { echo "$scratch/$1_${version}_$architecture.deb"; }

# The files and links of a package, each with its folder.
contents() { dpkg-deb -c "$(package "$1")" | awk '$1 !~ /^d/ {print $6}' | sed 's/^\.//'; }

# has PACKAGE PATTERN...: files that match the whole patterns are in it.
has() {
  local name=$1 pattern files
  files=$(contents "$name")
  shift
  for pattern in "$@" "/usr/share/doc/$name/copyright" "/usr/share/doc/$name/changelog.Debian.gz"; do
    grep -qxE "$pattern" <<<"$files" || fail "$name has no $pattern; it has: $files"
  done
}

# has_field PACKAGE FIELD PATTERN
has_field() { dpkg-deb -f "$(package "$1")" "$2" | grep -qE "$3" || fail "$1: $2 is '$(dpkg-deb -f "$(package "$1")" "$2")', not $3"; }

[ "$(find "$scratch" -maxdepth 1 -name '*.deb' | wc -l)" = 4 ] || fail "there are other packages than four: $(ls "$scratch")"
lib='/usr/lib(/[a-z0-9_]+-linux-gnu)?'
has gigabar /usr/bin/gigabar /usr/bin/gaspi_run /usr/share/man/man1/gaspi_run.1.gz /usr/share/man/man1/gigabar.1.gz /usr/share/man/man1/gigabar-doctor.1.gz /usr/share/bash-completion/completions/gigabar \
  /usr/share/zsh/site-functions/_gigabar /usr/share/fish/vendor_completions.d/gigabar.fish /usr/share/gigabar/schema/doctor.schema.json \
  /usr/share/gigabar/python/gigabar_report/__main__.py /usr/share/gigabar/python/gigabar_report/style.css
has libgigabar1 "$lib/libgigabar.so.1" "$lib/libgigabar.so.1.0" /usr/libexec/gigabar/gigabar-probe
has libgigabar-dev /usr/include/gigabar.h /usr/include/gigabar/fabric.hpp /usr/include/gdrapi.h "$lib/libgigabar.so" "$lib/pkgconfig/gigabar.pc" \
  "$lib/pkgconfig/gdrapi.pc" "$lib/cmake/gigabar/gigabarConfig.cmake"
has libgdrapi2-gigabar "$lib/libgdrapi.so" "$lib/libgdrapi.so.2" "$lib/libgdrapi.so.2.6"

# No file is in two packages: dpkg would refuse the second one.
twice=$(for name in gigabar libgigabar1 libgigabar-dev libgdrapi2-gigabar; do contents "$name"; done | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"

for name in gigabar libgigabar1 libgigabar-dev libgdrapi2-gigabar; do
  has_field "$name" Package "^$name\$"
  has_field "$name" Version "^$version\$"
  has_field "$name" Architecture "^$architecture\$"
  has_field "$name" Maintainer '<.+@.+>'
  dpkg-deb --fsys-tarfile "$(package "$name")" | tar -xOf - "./usr/share/doc/$name/copyright" >"$scratch/copyright"
  for words in /usr/share/common-licenses/Apache-2.0 'Frank Denis'; do
    grep -qF "$words" "$scratch/copyright" || fail "$name: its copyright file lacks a licence of what is in it: $words"
  done
  [ "$(dpkg-deb -f "$(package "$name")" Description | wc -l)" -ge 2 ] || fail "$name has no description"
done
has_field gigabar Suggests 'python3-matplotlib'
has_field libgdrapi2-gigabar Provides '(^|, )libgdrapi \(= 2\.6\)(,|$)' # packages that need it name a version
for field in Conflicts Replaces; do has_field libgdrapi2-gigabar "$field" '(^|, )libgdrapi(,|$)'; done
has_field libgigabar-dev Depends "libgigabar1 \(= $version\), libgdrapi2-gigabar \(= $version\)"
has_field libgigabar1 Depends 'libc6 .*libstdc\+\+6'
for pair in libgigabar1:libgigabar:1 libgdrapi2-gigabar:libgdrapi:2; do
  IFS=: read -r name library number <<<"$pair"
  # A later version will do: docs/compatibility.md promises it.
  dpkg-deb -I "$(package "$name")" shlibs | grep -qxF "$library $number $name (>= $version)" || fail "$name does not say that it, or a later one, has $library.so.$number"
done
