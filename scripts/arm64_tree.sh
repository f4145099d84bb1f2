#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arm64_tree.sh FOLDER PIP: makes the folder that cmake/aarch64.cmake builds with. In it are
#   sysroot/     Debian 12's packages for arm64, to compile and link against: a library works with its C library and later ones
#   bin/python   Debian 13's Python for arm64, in qemu: from 3.12 on it has the stable ABI. Programs that it starts are this machine's
#   modules/     what makes a wheel, for that Python
#   cuda/        the static CUDA run-time for arm64
# Nothing of the packages is installed on this machine, and of their scripts none is run.
set -euo pipefail
tree=$1 pip=$2
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
packages=(libc6-dev libstdc++6 libfmt-dev libcli11-dev nlohmann-json3-dev libhwloc-dev libibverbs-dev librdmacm-dev libsodium-dev
  libpmix-dev libssl-dev libucx-dev)
python=python3.13

# shellcheck source=scripts/debian_archive.sh
source "$here/debian_archive.sh"
if [ -z "$archive" ]; then
  echo "arm64 packages come from the archive that apt takes Debian's packages from; this machine's apt takes none from Debian" >&2
  exit 1
fi

# debian_tree SUITE FOLDER PACKAGE...: unpacks the packages and those that they need.
debian_tree() {
  local suite=$1 folder=$2 link target
  shift 2
  mkdir -p "$folder"
  mmdebstrap --variant=extract --architectures=arm64 --include="$*" --format=tar "${archive_options[@]}" "$suite" - "$archive" |
    tar -x --no-same-owner --exclude='./dev/*' -C "$folder"
  [ -e "$folder/lib" ] || ln -s usr/lib "$folder/lib"
  # The linker follows links: one that begins at / would lead to this machine's files.
  find "$folder" -type l -lname '/*' -printf '%p\t%l\n' | while IFS=$'\t' read -r link target; do ln -sfnr "$folder$target" "$link"; done
}

debian_tree bookworm "$tree/sysroot" "${packages[@]}"
debian_tree trixie "$tree/python" "$python" "lib$python-dev" libstdc++6
for folder in "$python" "aarch64-linux-gnu/$python"; do
  cp -r "$tree/python/usr/include/$folder" "$tree/sysroot/usr/include/$folder"
done
ln -s "$python" "$tree/sysroot/usr/include/python3"

mkdir -p "$tree/bin"
cat >"$tree/bin/python" <<END
#!/bin/sh
# Compiled modules are kept here: qemu looks for the interpreter's own folders in the tree only when it reads.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX='$tree/pycache'
exec qemu-aarch64-static -0 "\$0" -L '$tree/python' '$tree/python/usr/bin/$python' "\$@"
END
chmod +x "$tree/bin/python"

mapfile -t build_modules < <(grep -E '^(scikit-build-core|nanobind)==' "$here/../tests/python/requirements.txt")
run_time=$(grep '^nvidia-cuda-runtime==' "$here/cuda-wheels.txt")
[ ${#build_modules[@]} = 2 ] || { echo "tests/python/requirements.txt does not name scikit-build-core and nanobind" >&2 && exit 1; }
wheels=("$pip" install --disable-pip-version-check --only-binary :all: --platform manylinux2014_aarch64)
"${wheels[@]}" --python-version "${python#python}" --target "$tree/modules" pip "${build_modules[@]}"
"${wheels[@]}" --no-deps --target "$tree/wheels" "$run_time"
ln -s wheels/nvidia/cu13/lib "$tree/cuda"
