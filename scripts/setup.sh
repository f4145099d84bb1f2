# SPDX-License-Identifier: Apache-2.0
# Sourced by ./run, ./test and .ci/run: installs what is missing, configures, builds. Nothing is done twice: on a machine that
# has everything the first two steps only look.
#
# parse_options sets: preset (a name in CMakePresets.json), build_folder, cuda (auto, wheels or off), install and quick (yes or no) and
# remaining_arguments (what stands behind --). configure_options, which it empties, are given to CMake too.
# shellcheck disable=SC2034  # remaining_arguments is for those who source this

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_packages=(g++ cmake ninja-build ccache pkgconf python3 libgtest-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libhwloc-dev libibverbs-dev librdmacm-dev libsodium-dev libpmix-dev libssl-dev libucx-dev graphviz iproute2 python3-jsonschema python3-yaml)

# What a cross build for arm64 is made with.
arm64_tools=(g++-aarch64-linux-gnu qemu-user-static mmdebstrap uidmap debian-archive-keyring)

usage() {
  cat <<END
usage: $0 [options] [-- arguments]
  --no-cuda           build without NVIDIA support
  --cuda-from-wheels  take nvcc and CUDA's headers from Python wheels even when a CUDA toolkit is installed
  --no-install        install nothing; fail when something is missing
  --preset NAME       another build of CMakePresets.json (default: release)
  --quick             of the tests: no guests, no long loops of ranks that are killed, no repeats with other numbers of connections
  arguments           $1
END
}

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Runs a command with its output in a log file; shows the log only when the command fails.
quietly() {
  local what=$1 log=$2
  shift 2
  mkdir -p "$(dirname "$log")"
  echo "-- $what"
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}

parse_options() {
  local arguments_mean=$1
  shift
  preset="" cuda=auto install=yes quick=no remaining_arguments=() configure_options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --no-cuda) cuda=off ;;
      --cuda-from-wheels) cuda=wheels ;;
      --no-install) install=no ;;
      --quick) quick=yes ;;
      --preset)
        [ $# -ge 2 ] || die "--preset needs a name; 'cmake --list-presets' shows them"
        preset=$2
        shift
        ;;
      -h | --help) usage "$arguments_mean" && exit 0 ;;
      --) shift && remaining_arguments=("$@") && break ;;
      *) die "unknown option '$1'; $0 --help lists them" ;;
    esac
    shift
  done
  if [ -z "$preset" ]; then
    if [ "$cuda" = off ]; then preset=no-cuda; else preset=release; fi
  fi
  build_folder=build/$preset
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Installs those of the named Debian packages that are missing.
need_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    [ "$install" = no ] && return
    die "this is not Debian or Ubuntu (no apt-get); install the equivalents of: $* and run again with --no-install"
  fi
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$install" = yes ] || die "not installed: ${missing[*]}; run without --no-install, or install them"
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
    die "not installed: ${missing[*]}; run as root or with passwordless sudo, or let an administrator install them"
  fi
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=2 -o DPkg::Lock::Timeout=300)
  # A failed update is not yet an error: the lists that are here may be enough.
  quietly "updating the package lists" build/logs/apt-update.log as_root "${apt[@]}" update || true
  quietly "installing ${missing[*]}" build/logs/apt-install.log \
    as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    die "could not install ${missing[*]} (log above); check the network and the package sources, or install them by hand"
}

# What tests/vm starts guests with, builds for them and runs in them.
vm_packages=(qemu-system-x86 cpio kmod binutils gcc make xz-utils iproute2 python3 libc6-dev linux-headers-amd64
  ibverbs-providers ibverbs-utils rdmacm-utils perftest)

# What the tests of `gigabar report` draw curves with, and look at its pages with.
report_packages=(python3-matplotlib fonts-dejavu-core)
browser_packages=(chromium)

# Prints why tests/vm cannot start guests on this machine; nothing when it can.
why_no_guests() {
  local system
  system=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || system=""
  if [ "$(uname -m)" != x86_64 ]; then
    echo "guests need an x86-64 machine, this one is $(uname -m)"
  elif [ "$system" != "debian 12" ]; then
    echo "guests are made from Debian 12's packages, this is '${system:-an unknown system}'"
  fi
}

# Installs what the tests in guests need. Where that cannot be they are skipped and say why, so this ends nothing.
need_guest_packages() {
  if [ "$install" = yes ] && [ -z "$(why_no_guests)" ]; then
    (need_packages "${vm_packages[@]}") || echo "-- the tests in guests will be skipped"
  fi
}

# Installs what the tests of pages need. Ubuntu has no package of a browser, only a snap; without one the tests in it are skipped and say why.
need_report_packages() {
  need_packages "${report_packages[@]}"
  if [ "$install" = yes ] && [ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ]; then
    (need_packages "${browser_packages[@]}") || echo "-- the tests in a browser will be skipped"
  fi
}

# Whether this machine has a CUDA toolkit with everything we compile against. Says what is missing when there is only a part of one.
has_cuda_toolkit() {
  local nvcc root header
  nvcc=$(PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin" command -v nvcc) || return 1
  root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  for header in cudaTypedefs.h nvml.h; do
    if ! compgen -G "$root/include/$header" >/dev/null && ! compgen -G "$root/targets/*/include/$header" >/dev/null &&
      [ ! -f "/usr/include/$header" ]; then
      echo "-- the CUDA toolkit of $nvcc has no $header: taking CUDA from Python wheels"
      return 1
    fi
  done
}

# What Python wheels bring is kept in .venv, away from the machine's own Python.
need_venv() {
  need_packages python3-venv
  [ -x .venv/bin/pip ] || quietly "making .venv" build/logs/venv.log /usr/bin/python3 -m venv .venv ||
    die "could not make .venv (log above)"
}

# Puts nvcc and CUDA's headers of scripts/cuda-wheels.txt into .venv; .venv/cuda then has the shape of a toolkit.
need_cuda_wheels() {
  local wanted=scripts/cuda-wheels.txt done_mark=.venv/cuda-wheels.txt folder
  cmp -s "$wanted" "$done_mark" && return
  [ "$install" = yes ] || die "no complete CUDA toolkit; run without --no-install, or with --no-cuda"
  need_venv
  quietly "installing nvcc into .venv" build/logs/pip.log .venv/bin/pip install --only-binary :all: -r "$wanted" ||
    die "could not install nvcc's Python wheels (log above); check the network, install a CUDA toolkit, or run with --no-cuda"
  folder=$(echo .venv/lib/python3*/site-packages/nvidia/cu13)
  [ -x "$folder/bin/nvcc" ] || die "the wheels of $wanted have no bin/nvcc in $folder; install a CUDA toolkit, or run with --no-cuda"
  # nvcc looks for its libraries in lib64; the wheels have only lib.
  ln -sfn lib "$folder/lib64"
  ln -sfn "${folder#.venv/}" .venv/cuda
  cp "$wanted" "$done_mark"
}

# Makes build/arm64-tree, and again when what it is made of has changed.
need_arm64_tree() {
  local tree=$PWD/build/arm64-tree wanted
  wanted=$(echo "$tree" | cat - scripts/arm64_tree.sh scripts/debian_archive.sh scripts/cuda-wheels.txt tests/python/requirements.txt | sha256sum)
  if [ "$(cat "$tree/made-of" 2>/dev/null)" = "$wanted" ]; then return; fi
  [ "$install" = yes ] || die "no arm64 packages in $tree; run without --no-install"
  need_packages "${arm64_tools[@]}"
  need_venv
  rm -rf "$tree"
  quietly "unpacking arm64 packages into build/arm64-tree" build/logs/arm64-tree.log scripts/arm64_tree.sh "$tree" .venv/bin/pip ||
    die "could not make $tree (log above); check the network and the package sources"
  echo "$wanted" >"$tree/made-of"
}

configure() {
  local cache=$build_folder/CMakeCache.txt fresh=() switch=()
  [ "$cuda" != off ] || switch=(-DGIGABAR_CUDA=OFF)
  # CMake keeps the first nvcc that it found; another one needs a new cache.
  if [ -f "$cache" ] && ! grep -qx "GIGABAR_CUDA_ROOT:[A-Z]*=$cuda_root" "$cache"; then fresh=(--fresh); fi
  if command -v ccache >/dev/null; then
    # Objects do not depend on the folder that the project lies in, so a second checkout finds the first one's. ccache looks at files
    # that begin with a precompiled header only where it may take their macros from it.
    export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}pch_defines,time_macros
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  fi
  quietly "configuring $build_folder" "build/logs/configure-$preset.log" \
    cmake --preset "$preset" ${fresh[@]+"${fresh[@]}"} -DGIGABAR_CUDA_ROOT="$cuda_root" ${switch[@]+"${switch[@]}"} \
    ${configure_options[@]+"${configure_options[@]}"} ||
    die "CMake could not configure the build (log above)"
  # Libraries that are not here, and what is lost without them.
  grep '^-- without ' "build/logs/configure-$preset.log" || true
}

build() {
  echo "-- building $build_folder (minutes the first time, seconds later)"
  ninja -C "$build_folder" --quiet "$@" || die "the build failed (messages above)"
}

# From a bare machine to a configured build of $preset.
prepare() {
  cuda_root=""  # empty: CMake finds the toolkit, when there is one
  # In a cross build nvcc and the run-time for arm64 have to be of one version.
  if [ "$cuda" = auto ] && { [ "$preset" = arm64 ] || ! has_cuda_toolkit; }; then cuda=wheels; fi
  need_packages "${build_packages[@]}"
  [ "$preset" != arm64 ] || need_arm64_tree
  if [ "$cuda" = wheels ]; then
    need_cuda_wheels
    cuda_root=$PWD/.venv/cuda
  fi
  configure
}

# set_up [TARGET...]: from a bare machine to a finished build.
set_up() {
  prepare
  build "$@"
}

# name_left_out FOLDER LABEL WHY: the lines of left-out.txt for the tests with that label; nothing when there is none.
name_left_out() {
  local names
  names=$(ctest --test-dir "$1" -N -L "$2" | sed -n '/(Disabled)$/d; s/^ *Test *#[0-9]*: //p')
  [ -z "$names" ] || printf '%s\n%s\n' "$3" "$names"
}

# run_tests FOLDER [ctest's options]: runs the tests of a folder of the build and says what was skipped and why; the report stays in
# $build_folder/tests.xml. Tests with a label in $without_labels ('gpu|conformance') are left out. Those that need a GPU, where there is
# none, are left out too, and named in $build_folder/left-out.txt. $test_slots run at once, by default two for each processor: most tests
# wait, for a rank, a time-out or a process, more than they work.
run_tests() {
  local folder=$1 status=0
  shift
  # A report of an earlier run must not be read as this one's.
  rm -f "$build_folder/tests.xml" "$build_folder/left-out.txt"
  local left_out=() labels=${without_labels:-}
  if [ ! -e /dev/nvidiactl ]; then
    labels=${labels:+$labels|}gpu
    name_left_out "$folder" '^gpu$' "tests that need a GPU, which this machine has not" >"$build_folder/left-out.txt"
  fi
  [ -z "$labels" ] || left_out=(-LE "^($labels)\$")
  ctest --test-dir "$folder" "${left_out[@]+"${left_out[@]}"}" --no-tests=error --output-on-failure --parallel "${test_slots:-$((2 * $(nproc)))}" \
    --output-junit "$PWD/$build_folder/tests.xml" "$@" >"build/logs/ctest-$preset.log" 2>&1 || status=$?
  # The summary shows what the failed ones printed; the log has every line.
  [ $status = 0 ] || tail -n 30 "build/logs/ctest-$preset.log" >&2
  python3 scripts/summarise_tests.py "$build_folder/tests.xml" || status=1
  return $status
}
