// SPDX-License-Identifier: Apache-2.0
// The copy kernel's fat binary, inside the library.
#include "base/embed_file.hpp"
#include "transport/local/persistent_copy_kernel.hpp"

#if defined(GIGABAR_DEVICE_CODE)
GIGABAR_EMBED_FILE(gigabar_local_copy_kernel, GIGABAR_DEVICE_CODE);
#else
static const unsigned char* const gigabar_local_copy_kernel = nullptr;
#endif

namespace gigabar::transport::local {
const void* copy_kernel_image() noexcept { return gigabar_local_copy_kernel; }
}  // namespace gigabar::transport::local
