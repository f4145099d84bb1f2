// SPDX-License-Identifier: Apache-2.0
// 32-byte streaming stores and loads.
#include <immintrin.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Avx2 {
  static void store(Size<16>, void* mapped, const void* host) {
    _mm_stream_si128(static_cast<__m128i*>(mapped), _mm_loadu_si128(static_cast<const __m128i*>(host)));
  }
  static void store(Size<32>, void* mapped, const void* host) {
    _mm256_stream_si256(static_cast<__m256i*>(mapped), _mm256_loadu_si256(static_cast<const __m256i*>(host)));
  }

  using Vector = __m256i;
  static constexpr std::size_t kVectorBytes = 32;
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) {
    return _mm256_stream_load_si256(static_cast<const __m256i*>(mapped));
  }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) {
    _mm256_storeu_si256(static_cast<__m256i*>(host), vector);
  }
};

}  // namespace

constinit const Store avx2_store = store_range<Avx2>;
constinit const Load avx2_load = load_range<Avx2>;

}  // namespace gigabar::kernels
