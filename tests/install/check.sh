#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh CHECK PREFIX SCRATCH: looks at an installed Gigabar as a stranger does, who has no other part of the project.
# Uses $CC, $CXX, $CMAKE. Exits 0 when the check holds; otherwise says what does not.
set -euo pipefail
check=$1 prefix=$2 scratch=$3
stranger=$(cd "$(dirname "${BASH_SOURCE[0]}")/stranger" && pwd)
examples=$stranger/../../../examples
export GIGABAR_STAND_IN=1
rm -rf "$scratch"
mkdir -p "$scratch"

fail() {
  echo "$check: $*" >&2
  exit 1
}

# The folder of the libraries: lib, lib64 or lib/<architecture>, as this system has it.
library_folder=$(dirname "$(find "$prefix" -name libgigabar.so -print -quit)")
export PKG_CONFIG_PATH=$library_folder/pkgconfig

# It captures this machine, finds nothing changed, and finds that another machine's devices are gone: this one may be one of the two
# captured ones, but not both.
check_what_changed() {
  local others=$stranger/../../sysroots/captured
  "$1" "$scratch/machine.tar"
  "$1" "$scratch/machine.tar"
  if "$1" "$others/captured_h200_pair.json" && "$1" "$others/captured_rdma_guest.json"; then fail "what_changed has found this machine to be another one"; fi
}

check_cmake_package() {
  cp "$stranger"/* "$examples"/*.c* "$scratch"
  "$CMAKE" -S "$scratch" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
  "$CMAKE" --build "$scratch/build"
  local example
  for example in "$examples"/*.c*; do
    example=$(basename "${example%.*}")
    case $example in
      kernel_* | gaspi_kernels | gaspi_ping_pong) "$prefix/bin/gigabar" run -n 2 -- "$scratch/build/$example" ;;
      gaspi_survive) [ "$("$prefix/bin/gaspi_run" -n 3 "$scratch/build/$example" | grep -c '2 of 3 ranks go on')" = 2 ] ;; # a rank is killed
      write_to_a_neighbour | sum_over_ranks | gaspi_ring | ranks_from_c) "$prefix/bin/gigabar" run -n 3 -- "$scratch/build/$example" ;;
      gate_a_job) "$scratch/build/$example" || [ $? = 1 ] ;; # this machine may have what fails
      what_changed) check_what_changed "$scratch/build/$example" ;;
      *) "$scratch/build/$example" ;;
    esac
  done
  "$prefix/bin/gigabar" run -n 2 -- "$scratch/build/kernel_matvec" cpu
  "$scratch/build/gdrapi_version"
  "$scratch/build/bind_near_gpu" 0 true
  if "$scratch/build/pick_device" 0000:ff:1f.7; then fail "pick_device has found a device that is not there"; fi
  # The library has found the program that it starts for probes when what is said of UCX is the dynamic linker's word.
  local said
  said=$(GIGABAR_TRANSPORTS=ucx GIGABAR_UCX_TRUST_NETWORK=1 GIGABAR_UCP_LIBRARY=/nonexistent/libucp.so "$scratch/build/kernel_exchange" 2>&1) && fail "it has opened no UCX"
  grep -qE '/nonexistent/libucp.so: cannot open|no support for UCX' <<<"$said" || fail "of UCX it says: $said"
}

check_pkg_config() {
  local line flags flags_of_gigabar package printed
  # The README's line as a reader types it.
  line=$(grep -E '^g\+\+ .*pkg-config' "$stranger/../../../README.md") || fail "the README has no line for pkg-config"
  cp "$examples/write_a_flag.cpp" "$scratch"
  (cd "$scratch" && g++() { "$CXX" -Wall -Wextra -Werror "$@"; } && eval "$line")
  "$scratch/write_a_flag"
  flags=$(pkg-config --cflags --libs gdrapi)
  # shellcheck disable=SC2086  # the flags are several words
  "$CC" -std=c11 -Wall -Wextra -Werror "$stranger/gdrapi_version.c" -o "$scratch/gdrapi_version" $flags -Wl,-rpath,"$library_folder"
  "$scratch/gdrapi_version"
  flags_of_gigabar=$(pkg-config --cflags --libs gigabar)
  # shellcheck disable=SC2086
  "$CC" -std=c11 -Wall -Wextra -pedantic -Werror "$examples/flag_from_c.c" -o "$scratch/flag_from_c" $flags_of_gigabar -Wl,-rpath,"$library_folder"
  "$scratch/flag_from_c"
  # A program for GPI-2, by both of its names.
  for package in gaspi GPI2; do
    flags=$(pkg-config --cflags --libs "$package")
    # shellcheck disable=SC2086
    "$CC" -std=c11 -Wall -Wextra -Werror "$examples/gaspi_ring.c" -o "$scratch/$package" $flags -Wl,-rpath,"$library_folder"
    printed=$("$prefix/bin/gaspi_run" -n 3 "$scratch/$package")  # all of it: a rank that still prints must not lose its reader
    grep -q 'came back as 6' <<<"$printed" || fail "gaspi_ring prints: $printed"
  done
  flags=$(pkg-config --cflags --libs gdrapi)
  # shellcheck disable=SC2086
  "$CC" -std=c11 -Wall -Wextra -Werror "$examples/pin_stand_in.c" -o "$scratch/pin_stand_in" $flags -Wl,-rpath,"$library_folder"
  "$scratch/pin_stand_in"
}

check_headers() {
  local header count=0 warnings=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$prefix/include")
  while read -r header; do
    echo "#include \"$header\"" >"$scratch/alone.cpp"
    "$CXX" -std=c++20 "${warnings[@]}" "$scratch/alone.cpp" || fail "$header does not compile alone"
    count=$((count + 1))
  done < <(cd "$prefix/include" && find . -name '*.hpp' -o -name '*.h')
  [ "$count" -ge 7 ] || fail "only $count headers are installed"
  for header in gigabar.h gigabar/fabric.h gigabar/machine.h gigabar/mapping.h gigabar/status.h; do
    echo "#include \"$header\"" >"$scratch/alone.c"
    "$CC" -std=c11 "${warnings[@]}" "$scratch/alone.c" || fail "$header does not compile as C"
  done
  for header in gdrapi.h gigabar/stand_in.h GASPI.h GASPI_Ext.h PGASPI.h; do
    echo "#include \"$header\"" >"$scratch/alone.c"
    "$CC" -std=c99 "${warnings[@]}" "$scratch/alone.c" || fail "$header does not compile as C"
  done
}

check_links() {
  local link soname
  for link in libgdrapi.so:libgdrapi.so.2 libgdrapi.so.2:libgdrapi.so.2.6 libgigabar.so:libgigabar.so.1 libgigabar.so.1:libgigabar.so.1.0 \
    libgigabar_gaspi.so:libgigabar_gaspi.so.1 libgigabar_gaspi.so.1:libgigabar_gaspi.so.1.0 libGPI2.so:libgigabar_gaspi.so; do
    [ "$(readlink "$library_folder/${link%%:*}")" = "${link##*:}" ] || fail "${link%%:*} is not a link to ${link##*:}"
  done
  for soname in libgdrapi.so.2 libgigabar.so.1 libgigabar_gaspi.so.1; do
    readelf -d "$library_folder/$soname" | grep -q "SONAME.*\[$soname\]" || fail "$soname has another SONAME"
  done
  # Everything of the project is inside, or in libgigabar.so beside it; what belongs to a vendor is opened at run time.
  if readelf -d "$library_folder"/libg*.so | grep NEEDED | grep -vE '\[(lib(c|m|stdc\+\+|gcc_s|dl|pthread|rt|gigabar)\.so\.[0-9]+|ld-linux.*)\]'; then
    fail "the libraries above are needed, and should not be"
  fi
}

exported() { nm -D --defined-only "$@" | awk 'NF == 3 && $2 != "A" {print $3}' | sed 's/@.*//' | sort; }

# C functions have the version of the interface, C++ ones that of the release, in its inline namespace; no data is exported, which
# programs would share with the library whatever becomes of it.
check_gigabar_symbols() {
  local symbols others
  symbols=$(nm -D --defined-only --with-symbol-versions "$library_folder/libgigabar.so" | awk 'NF == 3 && $2 != "A" {print $2, $3}' | c++filt)
  others=$(grep -vE '^[TW] gigabar(::v0::.*@@GIGABAR_CXX_[0-9]+_[0-9]+|_[a-z0-9_]+@@GIGABAR_1)$' <<<"$symbols") && fail "libgigabar.so also exports: $others"
  grep -q '^T gigabar::v0::map(.*@@GIGABAR_CXX_' <<<"$symbols" || fail "libgigabar.so does not export gigabar::v0::map"
  diff <(sed -n 's/.* \**\(gigabar_[a-z0-9_]*\)(.*);$/\1/p' "$stranger"/../../abi/gigabar_1_0.h | sort) \
    <(sed -n 's/^T \(gigabar_.*\)@@GIGABAR_1$/\1/p' <<<"$symbols" | sort) || fail "libgigabar.so exports other functions than gigabar.h declares"
}

# A project that has only a C compiler finds the package and runs.
check_c_project() {
  cp "$examples/flag_from_c.c" "$scratch"
  cat >"$scratch/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(stranger_in_c LANGUAGES C)
find_package(gigabar 0.1 REQUIRED)
add_executable(flag_from_c flag_from_c.c)
target_link_libraries(flag_from_c PRIVATE gigabar::gigabar)
END
  "$CMAKE" -S "$scratch" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix"
  "$CMAKE" --build "$scratch/build"
  "$scratch/build/flag_from_c"
}

check_gdrapi_symbols() {
  diff "$stranger/../gdrapi_symbols.txt" <(exported "$library_folder/libgdrapi.so") || fail "libgdrapi.so exports other names"
}

# Each function of the headers under both of its names, and nothing else.
check_gaspi_symbols() {
  local names
  names=$(sed -n 's/^extern __typeof__(\(gaspi_[a-z_]*\)).*/\1/p' "$prefix/include/PGASPI.h")
  [ "$(wc -l <<<"$names")" -ge 90 ] || fail "PGASPI.h has $(wc -l <<<"$names") functions"
  diff <(sort <(sed 's/^/p/' <<<"$names") - <<<"$names") <(exported "$library_folder/libgigabar_gaspi.so") || fail "libgigabar_gaspi.so exports other names"
}

check_tool() {
  local schema description place
  for schema in "$stranger"/../../../docs/schema/*.schema.json; do
    cmp "$schema" "$prefix/share/gigabar/schema/${schema##*/}" || fail "${schema##*/} is not installed"
  done
  description=$(sed -n 's/^Description: //p' "$PKG_CONFIG_PATH/gigabar.pc")
  for place in "$("$prefix/bin/gigabar" --help)" "$(cat "$stranger/../../../README.md")"; do
    tr -s ' \n' ' ' <<<"$place" | grep -qF "$description" || fail "the program, README.md and gigabar.pc say differently what Gigabar is"
  done
  for place in man/man1/gigabar.1 man/man1/gigabar-doctor.1 man/man1/gaspi_run.1 bash-completion/completions/gigabar zsh/site-functions/_gigabar fish/vendor_completions.d/gigabar.fish; do
    [ -s "$prefix/share/$place" ] || fail "share/$place is not installed"
  done
  GIGABAR_UCP_LIBRARY=/nonexistent/libucp.so "$(find "$prefix" -name gigabar-probe)" --gigabar-probe libucp | grep -q 'passed'
  # It finds what makes the page from where it is.
  "$prefix/bin/gigabar" report "$stranger/../../../bench/results/h200-survey.json" -o "$scratch/page.html"
  grep -q '<h2>Verdicts</h2>' "$scratch/page.html" || fail "the page of gigabar report has no verdicts"
  "$prefix/bin/gigabar" info | grep stand-in || fail "info does not say that the device is a stand-in"
}

check_licence() {
  local file
  for file in LICENSE NOTICE; do
    cmp "$stranger/../../../$file" "$prefix/share/doc/gigabar/$file" || fail "$file is not installed"
  done
}

"check_$check"
