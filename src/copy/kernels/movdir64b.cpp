// SPDX-License-Identifier: Apache-2.0
// MOVDIR64B: a 64-byte store that leaves the CPU as one write, past the write-combining buffers; ordered by SFENCE like them.
// There are CPUs with it and without AVX (Tremont), so the rest is SSE2. No loads: the table uses those of another kernel.
// Source: Intel SDM vol. 2, MOVDIR64B.
#include <immintrin.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Movdir64b {
  static void store(Size<16>, void* mapped, const void* host) {
    _mm_stream_si128(static_cast<__m128i*>(mapped), _mm_loadu_si128(static_cast<const __m128i*>(host)));
  }
  static void store(Size<64>, void* mapped, const void* host) { _movdir64b(mapped, host); }
};

}  // namespace

constinit const Store movdir64b_store = store_range<Movdir64b>;

}  // namespace gigabar::kernels
