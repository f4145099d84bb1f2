# SPDX-License-Identifier: Apache-2.0
# Cross build for 64-bit Arm with Debian's compiler; programs run in qemu's user mode.
#   GIGABAR_ARM64_TREE   what need_arm64_tree of scripts/setup.sh makes: sysroot/ has Debian's arm64 packages to build against, cuda/ the
#                        static CUDA run-time. Without it the C library is the cross compiler's, and headers of other libraries come
#                        from the host's /usr/include, which Debian's cross compiler searches last; none of them is linked then.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CUDA_HOST_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GIGABAR_ARM64_TREE)
if(GIGABAR_ARM64_TREE)
  if(NOT EXISTS ${GIGABAR_ARM64_TREE}/sysroot)
    message(FATAL_ERROR "GIGABAR_ARM64_TREE: there is no ${GIGABAR_ARM64_TREE}/sysroot; scripts/aarch64_wheel.sh makes it. Without ranks, device "
                        "code and program: -DGIGABAR_ARM64_TREE= -DGIGABAR_CUDA=OFF -DGIGABAR_TOOLS=OFF")
  endif()
  set(CMAKE_SYSROOT ${GIGABAR_ARM64_TREE}/sysroot)
  set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${GIGABAR_ARM64_TREE}/sysroot)
  # CMake tells nvcc no sysroot. The static run-time comes before that of the host, which nvcc has in its own folder.
  set(CMAKE_CUDA_FLAGS_INIT "-Xcompiler=--sysroot=${GIGABAR_ARM64_TREE}/sysroot -L${GIGABAR_ARM64_TREE}/cuda")
endif()
