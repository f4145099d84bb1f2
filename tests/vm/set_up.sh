#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares what tests/vm/guest starts: a kernel with its RDMA modules, the first file system, the driver of the stand-in BAR.
#   set_up.sh CACHE NAME yes|no   leaves CACHE/NAME; the last argument says whether missing packages may be installed
# The caller holds the cache's lock. Exit code 0: done; 77: this machine cannot run guests (the reason also stands in
# CACHE/why-not); anything else: failed.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"

[ $# = 3 ] || die "usage: set_up.sh CACHE NAME yes|no"
cache=$1 name=$2 install=$3
here=$PWD/tests/vm
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
work=$(mktemp -d "$cache/unfinished.XXXXXX") || die "cannot write in $cache"
trap 'rm -rf "$work"' EXIT

say() { echo "guest: $*" >&2; }

skip() {
  say "$*"
  echo "$*" >"$cache/why-not"
  exit 77
}

# Runs a command; shows what it printed only when it fails.
silently() {
  "$@" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    return 1
  }
}

install_packages() {
  local why
  if ! why=$(need_packages "$@" 3>&2 2>&1 >&3); then
    echo "$why" >&2
    skip "${why##*$'\n'}"
  fi
}

# The release of the kernel that the installed headers belong to: 6.1.0-56-amd64.
release_of_headers() {
  dpkg-query -W -f='${Depends}' linux-headers-amd64 | grep -o '[0-9][^ ,]*-amd64' | head -n 1
}

# download PACKAGE: puts its .deb into $work.
download() {
  (cd "$work" && apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=2 -o Acquire::http::Timeout=30 download "$1") \
    >"$work/download.log" 2>&1
}

# The kernel that fits the headers. Package lists that are newer than the headers know only a newer kernel.
download_kernel() {
  release=$(release_of_headers) || die "linux-headers-amd64 names no kernel"
  download "linux-image-$release" && return
  if [ "$install" = yes ]; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >"$work/download.log" 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends linux-headers-amd64 \
      >>"$work/download.log" 2>&1 || true
    release=$(release_of_headers)
    download "linux-image-$release" && return
  fi
  skip "cannot download linux-image-$release ($(grep -m 1 '^[EW]:' "$work/download.log" || tail -n 1 "$work/download.log"));" \
    "check the network, run 'apt-get update'"
}

# Debian's kernel has no siw (CONFIG_RDMA_SIW is not set): it is built from the kernel's own source.
build_siw() {
  local modules=$1 version=${release%%-*} folder=$work/drivers/infiniband/sw/siw package
  package=linux-source-${version%.*}
  download "$package" || skip "cannot download $package ($(tail -n 1 "$work/download.log")); check the network, run 'apt-get update'"
  dpkg-deb --fsys-tarfile "$work/$package"_*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
    tar -C "$work" -xJ --strip-components=1 --wildcards '*/drivers/infiniband/sw/siw' || die "$package has no siw"
  silently make -s -C "/lib/modules/$release/build" M="$folder" CONFIG_RDMA_SIW=m modules || die "siw does not build"
  mkdir -p "$modules/updates"
  strip -g -o "$modules/updates/siw.ko" "$folder/siw.ko"
  rm -rf "$work/$package"_*.deb "$work/drivers"
}

# $kernel: vmlinux and lib/modules/$release of Debian's kernel, with siw. Shared by all versions of this folder's other files.
prepare_kernel() {
  local unpacked=$work/unpacked
  say "set-up: kernel $release and siw"
  mkdir -p "$work/kernel"
  dpkg -x "$work/linux-image-$release"_*.deb "$unpacked"
  rm "$work/linux-image-$release"_*.deb
  python3 "$here/unpack_kernel.py" "$unpacked/boot/vmlinuz-$release" "$work/kernel/vmlinux"
  strip -s "$work/kernel/vmlinux"
  build_siw "$unpacked/lib/modules/$release"
  depmod -b "$unpacked" "$release"
  mv "$unpacked/lib" "$work/kernel/lib"
  mv "$work/kernel" "$kernel"
}

build_bar_driver() {
  local folder=$work/fakegpu
  mkdir "$folder"
  cp "$here/fakegpu.c" "$folder"
  echo "obj-m := fakegpu.o" >"$folder/Makefile"
  silently make -s -C "/lib/modules/$release/build" M="$folder" modules || die "fakegpu does not build"
  strip -g -o "$root/modules/fakegpu.ko" "$folder/fakegpu.ko"
}

# list_modules LIST MODULE...: copies the modules with those they need; /modules/LIST names them in the order of loading. What an
# earlier list has is not named again.
list_modules() {
  local list=$1 module word path
  shift
  for module in "$@"; do
    modprobe -d "$kernel" -S "$release" --show-depends "$module" >"$work/depends" || die "the kernel has no module $module"
    while read -r word path _; do
      [ "$word" = insmod ] && [ ! -e "$root/modules/${path##*/}" ] || continue
      strip -g -o "$root/modules/${path##*/}" "$path"
      echo "${path##*/}" >>"$root/modules/$list"
    done <"$work/depends"
  done
}

# copy_program NAME: with the libraries that it is linked to.
copy_program() {
  local path library
  path=$(command -v "$1")
  cp -L "$path" "$root/bin/"
  ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
}

# $work/guest: the first file system, and which kernel it belongs to.
prepare_guest() {
  root=$work/root
  mkdir -p "$root/bin" "$root/modules" "$work/guest"
  silently gcc -D_GNU_SOURCE -Os -Wall -static -s -o "$root/init" "$here/guest_init.c" || die "guest_init.c does not compile"
  copy_program ip
  copy_program rdma
  list_modules devices virtio_pci virtio_net
  list_modules rdma crc32_generic crc32c_generic crc32_pclmul crc32c_intel rdma_ucm rdma_rxe siw veth
  list_modules files virtio_console 9pnet_virtio 9p overlay
  build_bar_driver
  echo fakegpu.ko >>"$root/modules/rdma"
  (cd "$root" && find . | LC_ALL=C sort | cpio -o -H newc --quiet) >"$work/guest/initrd"
  echo "$release" >"$work/guest/release"
  ln -s "../${kernel##*/}" "$work/guest/kernel"
}

# Other checkouts may use other versions of this folder, so the ones used last stay. One in use keeps its open files.
forget_old() {
  local folder used
  # shellcheck disable=SC2012  # these names have no odd characters
  ls -dt "$cache"/guest-* 2>/dev/null | tail -n +4 | while read -r folder; do rm -rf "$folder"; done
  # No pipe into 'grep -q': who writes to one that has found enough dies of SIGPIPE, which counts as 'not found'.
  used=$(compgen -G "$cache/guest-*/kernel/vmlinux" | xargs -r -n 1 realpath)
  for folder in "$cache"/kernel-*; do
    [[ $used == *"$(realpath "$folder")/"* ]] || rm -rf "$folder"
  done
}

why=$(why_no_guests)
[ -z "$why" ] || skip "$why"
install_packages "${vm_packages[@]}"
release=$(release_of_headers)
recipe=$(cat "$here/set_up.sh" "$here/unpack_kernel.py" | sha256sum | cut -c 1-8)
kernel=$cache/kernel-$release-$recipe
if [ ! -e "$kernel/vmlinux" ]; then
  download_kernel
  kernel=$cache/kernel-$release-$recipe
  [ -e "$kernel/vmlinux" ] || prepare_kernel
fi
prepare_guest
rm -rf "${cache:?}/$name"
mv "$work/guest" "$cache/$name"
rm -f "$cache/why-not"
forget_old
