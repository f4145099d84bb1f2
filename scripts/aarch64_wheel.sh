#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-builds the Python wheel for 64-bit Arm: build/arm64/dist/gigabar-*-cp312-abi3-linux_aarch64.whl. What stands behind -- is given to CMake:
#   scripts/aarch64_wheel.sh -- -DCMAKE_CUDA_ARCHITECTURES="90-real;90-virtual"
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

parse_options "given to CMake, which configures the library" --preset arm64 "$@"
# shellcheck disable=SC2034  # setup.sh's configure gives them to CMake
configure_options=(-DGIGABAR_WARNINGS_AS_ERRORS=OFF ${remaining_arguments[@]+"${remaining_arguments[@]}"})
set_up gigabar gdrapi gigabar_probe gigabar_program

root=$PWD tree=$PWD/build/arm64-tree
# The Python of the wheel's processor asks scikit-build-core for it, so that each name is right; it runs in qemu, and cmake and the compiler here.
make_wheel() (
  cd python || exit
  PYTHONPATH=$tree/modules exec "$tree/bin/python" - "$root/build/arm64/dist" "build-dir=$root/build/arm64/wheel" \
    "cmake.define.CMAKE_TOOLCHAIN_FILE=$root/cmake/aarch64.cmake" "cmake.define.GIGABAR_ARM64_TREE=$tree" \
    "cmake.define.Python_INCLUDE_DIR=$tree/sysroot/usr/include/python3" "cmake.define.GIGABAR_BUILD=$root/build/arm64" \
    "cmake.define.GIGABAR_WARNINGS_AS_ERRORS=$(sed -n 's/^GIGABAR_WARNINGS_AS_ERRORS:BOOL=//p' "$root/build/arm64/CMakeCache.txt")" <<'END'
import sys
from scikit_build_core.build import build_wheel

build_wheel(sys.argv[1], dict(setting.split("=", 1) for setting in sys.argv[2:]))
END
)
rm -rf build/arm64/dist
quietly "building the wheel" build/logs/wheel-arm64.log make_wheel || die "could not build the wheel (log above)"
echo "-- $(echo build/arm64/dist/*.whl)"
