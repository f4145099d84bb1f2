// SPDX-License-Identifier: Apache-2.0
// Every x86-64 CPU. SSE2 has no streaming load: on write-combined memory each 16-byte load is a round trip of its own, which is why
// kernels.cpp gives this kernel the loads of sse41.cpp where the CPU has them.
#include <emmintrin.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Sse2 {
  static void store(Size<16>, void* mapped, const void* host) {
    _mm_stream_si128(static_cast<__m128i*>(mapped), _mm_loadu_si128(static_cast<const __m128i*>(host)));
  }

  using Vector = __m128i;
  static constexpr std::size_t kVectorBytes = 16;
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) { return *static_cast<const volatile __m128i*>(mapped); }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) {
    _mm_storeu_si128(static_cast<__m128i*>(host), vector);
  }
};

}  // namespace

constinit const Store sse2_store = store_range<Sse2>;
constinit const Load sse2_load = load_range<Sse2>;

}  // namespace gigabar::kernels
