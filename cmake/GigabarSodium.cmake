# SPDX-License-Identifier: Apache-2.0
# Finds libsodium, which proves and encrypts what ranks of a job say to each other; the static library where there is one, so that
# libgigabar.so needs nothing more at run time.
#   gigabar_sodium       target to link; only when found
#   GIGABAR_HAS_SODIUM   ON when a program that uses it could be linked for the target architecture (a cross build's host library
#                        does not count); without it the components of src/fabric are left out
include_guard(GLOBAL)
include(CheckCXXSourceCompiles)

set(GIGABAR_HAS_SODIUM OFF CACHE INTERNAL "libsodium is there for the target architecture" FORCE)
find_path(GIGABAR_SODIUM_HEADER_FOLDER sodium.h)
find_library(GIGABAR_SODIUM_LIBRARY NAMES libsodium.a sodium)

if(GIGABAR_SODIUM_HEADER_FOLDER AND GIGABAR_SODIUM_LIBRARY)
  set(CMAKE_REQUIRED_INCLUDES ${GIGABAR_SODIUM_HEADER_FOLDER})
  set(CMAKE_REQUIRED_LIBRARIES ${GIGABAR_SODIUM_LIBRARY} Threads::Threads)
  check_cxx_source_compiles("#include <sodium.h>
int main() { return sodium_init() < 0 || crypto_generichash_keybytes() == 0; }" GIGABAR_SODIUM_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

if(GIGABAR_SODIUM_LINKS)
  add_library(gigabar_sodium INTERFACE)
  target_include_directories(gigabar_sodium SYSTEM INTERFACE ${GIGABAR_SODIUM_HEADER_FOLDER})
  target_link_libraries(gigabar_sodium INTERFACE ${GIGABAR_SODIUM_LIBRARY} Threads::Threads)
  set(GIGABAR_HAS_SODIUM ON CACHE INTERNAL "libsodium is there for the target architecture" FORCE)
endif()
if(NOT GIGABAR_HAS_SODIUM)
  gigabar_without(libsodium "no ranks: nothing of fabric.hpp, device_session.hpp and the commands between ranks")
endif()
message(STATUS "Gigabar: libsodium '${GIGABAR_SODIUM_LIBRARY}', usable ${GIGABAR_HAS_SODIUM}")
