// SPDX-License-Identifier: Apache-2.0
// The kernels' fat binary, inside the library.
#include "base/embed_file.hpp"
#include "streams/cuda_session.hpp"

#if defined(GIGABAR_DEVICE_CODE)
GIGABAR_EMBED_FILE(gigabar_stream_kernels, GIGABAR_DEVICE_CODE);
#else
static const unsigned char* const gigabar_stream_kernels = nullptr;
#endif

namespace gigabar::inline v0 {
const void* stream_kernels_image() noexcept { return gigabar_stream_kernels; }
}  // namespace gigabar::inline v0
