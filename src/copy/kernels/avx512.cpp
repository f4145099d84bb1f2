// SPDX-License-Identifier: Apache-2.0
// One instruction per line. Heads and tails are ordinary narrower stores: the manual advises against masked moves on memory-mapped
// I/O (Intel SDM vol. 2, VMASKMOV: the accesses and their order are the implementation's).
#include <immintrin.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Avx512 {
  static void store(Size<16>, void* mapped, const void* host) {
    _mm_stream_si128(static_cast<__m128i*>(mapped), _mm_loadu_si128(static_cast<const __m128i*>(host)));
  }
  static void store(Size<32>, void* mapped, const void* host) {
    _mm256_stream_si256(static_cast<__m256i*>(mapped), _mm256_loadu_si256(static_cast<const __m256i*>(host)));
  }
  static void store(Size<64>, void* mapped, const void* host) {
    _mm512_stream_si512(static_cast<__m512i*>(mapped), _mm512_loadu_si512(host));
  }

  using Vector = __m512i;
  static constexpr std::size_t kVectorBytes = 64;
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) {
    return _mm512_stream_load_si512(const_cast<void*>(mapped));
  }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) { _mm512_storeu_si512(host, vector); }
};

}  // namespace

constinit const Store avx512_store = store_range<Avx512>;
constinit const Load avx512_load = load_range<Avx512>;

}  // namespace gigabar::kernels
