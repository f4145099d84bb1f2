// SPDX-License-Identifier: Apache-2.0
// The shared library holds the components' objects; its own translation unit names the build.
#include "gigabar/export.hpp"

namespace gigabar {

// "0.1.0": the version of the library that was loaded, for programs that opened it at run time.
extern "C" GIGABAR_API const char* gigabar_version() { return "0.1.0"; }

}  // namespace gigabar
