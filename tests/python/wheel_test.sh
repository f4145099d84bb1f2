#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel over a finished build, installs it into a fresh environment, and runs the tests of the package there.
# usage: wheel_test.sh PYTHON SOURCE BUILD FOLDER
set -euo pipefail
python=$1 source=$2 build=$3 folder=$4
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
rm -rf "$folder/environment" "$folder/dist" "$folder/scratch"
mkdir -p "$folder/scratch"
"$python" -m venv "$folder/environment"
bin=$folder/environment/bin
"$bin/pip" install --only-binary :all: -r "$source/tests/python/requirements.txt"
"$bin/pip" wheel --no-build-isolation --no-deps --wheel-dir "$folder/dist" -C "build-dir=$folder/{wheel_tag}" \
  -C "cmake.define.GIGABAR_BUILD=$build" -C cmake.define.GIGABAR_WARNINGS_AS_ERRORS=ON "$source/python"
# With the compiler and the C library of Debian 12 it needs none later than glibc 2.34 and GCC 11's libstdc++.
if [ "$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}") $(uname -m)" = "debian 12 x86_64" ]; then
  "$bin/auditwheel" show "$folder"/dist/gigabar-*.whl >"$folder/scratch/tags" 2>&1
  grep -q '"manylinux_2_34_x86_64"' "$folder/scratch/tags" || {
    cat "$folder/scratch/tags" >&2
    exit 1
  }
fi
"$bin/pip" install --no-deps "$folder"/dist/gigabar-*.whl
cd "$folder/scratch"  # where no folder has the package's name
"$bin/python" -m nanobind.stubgen -q -m gigabar._core -p "$source/python/stub_patterns.txt" -o _core.pyi
diff -u "$source/python/gigabar/_core.pyi" _core.pyi || {
  echo "python/gigabar/_core.pyi is not what the extension says: copy $PWD/_core.pyi" >&2
  exit 1
}
"$bin/mypy" --strict --cache-dir mypy --exclude /share/ -p gigabar
"$bin/mypy" --strict --cache-dir mypy "$source"/examples/python/*.py
"$bin/python" -m pytest -q -p no:cacheprovider "$source/tests/python"
