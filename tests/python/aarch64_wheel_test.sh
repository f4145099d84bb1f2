#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is in the wheel that scripts/aarch64_wheel.sh has made, and that it works with a Python of arm64 in qemu's user mode.
# usage: aarch64_wheel_test.sh PYTHON SOURCE TREE DIST FOLDER
set -euo pipefail
python=$1 source=$2 tree=$3 dist=$4 folder=$5
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
rm -rf "$folder"
mkdir -p "$folder/scratch"
wheel=$(echo "$dist"/gigabar-*-cp312-abi3-linux_aarch64.whl)
if [ ! -f "$wheel" ]; then
  echo "$dist has no wheel with the stable ABI, but: $(ls "$dist" 2>&1); scripts/aarch64_wheel.sh makes it" >&2
  exit 1
fi
"$python" -m venv "$folder/environment"
pip=$folder/environment/bin/pip
"$pip" install --only-binary :all: -r <(grep '^auditwheel==' "$source/tests/python/requirements.txt")
"$folder/environment/bin/auditwheel" show "$wheel" >"$folder/scratch/tags" 2>&1
grep -q '"manylinux_2_34_aarch64"' "$folder/scratch/tags" || {
  cat "$folder/scratch/tags" >&2
  exit 1
}
"$pip" install --no-deps --target "$folder/site" --platform linux_aarch64 --python-version 3.12 --implementation cp --abi abi3 "$wheel"
# Programs that a program in qemu starts are started outside of it.
program=$folder/site/gigabar/bin/gigabar
mv "$program" "$program.arm64"
cat >"$program" <<END
#!/bin/sh
exec qemu-aarch64-static -0 gigabar -L '$tree/sysroot' '$program.arm64' "\$@"
END
chmod +x "$program"
cd "$folder/scratch" # where no folder has the package's name
GIGABAR_STAND_IN=2 PYTHONPATH=$folder/site:$tree/modules exec "$tree/bin/python" "$source/tests/python/aarch64_wheel.py" "${wheel##*/}"
