// The kernels' fat binary, inside the library.
#include "streams/cuda_session.hpp"

#if defined(GIGABAR_STREAM_KERNELS)

asm(".pushsection .rodata, \"a\"\n"
    ".balign 64\n"
    ".hidden gigabar_stream_kernels\n"
    ".global gigabar_stream_kernels\n"
    "gigabar_stream_kernels:\n"
    ".incbin \"" GIGABAR_STREAM_KERNELS
    "\"\n"
    ".popsection\n");
extern "C" const unsigned char gigabar_stream_kernels[];

namespace gigabar {
const void* stream_kernels_image() noexcept { return gigabar_stream_kernels; }
}  // namespace gigabar

#else

namespace gigabar {
const void* stream_kernels_image() noexcept { return nullptr; }
}  // namespace gigabar

#endif
