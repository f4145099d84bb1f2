// SPDX-License-Identifier: Apache-2.0
// The kernel's fat binary, inside the library.
#include "base/embed_file.hpp"
#include "copy/readback/readback.hpp"

#if defined(GIGABAR_DEVICE_CODE)
GIGABAR_EMBED_FILE(gigabar_readback_kernel, GIGABAR_DEVICE_CODE);
#else
static const unsigned char* const gigabar_readback_kernel = nullptr;
#endif

namespace gigabar::inline v0 {
const void* readback_kernel_image() noexcept { return gigabar_readback_kernel; }
}  // namespace gigabar::inline v0
