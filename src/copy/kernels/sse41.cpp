// SPDX-License-Identifier: Apache-2.0
// MOVNTDQA, 16 bytes: the first load of a 64-byte line of write-combined memory fetches the line, the others are served from it.
// Source: Intel SDM vol. 1 §12.10.3.
#include <smmintrin.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Sse41 {
  using Vector = __m128i;
  static constexpr std::size_t kVectorBytes = 16;
  // The intrinsic takes a pointer to non-const and does not write through it.
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) {
    return _mm_stream_load_si128(static_cast<__m128i*>(const_cast<void*>(mapped)));
  }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) {
    _mm_storeu_si128(static_cast<__m128i*>(host), vector);
  }
};

}  // namespace

constinit const Load sse41_load = load_range<Sse41>;

}  // namespace gigabar::kernels
