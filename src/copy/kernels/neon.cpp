// SPDX-License-Identifier: Apache-2.0
// 16-byte accesses of Normal non-cacheable memory, which is what write-combined is called on arm64; the CPU gathers stores of a
// line.
#include <arm_neon.h>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

// Volatile, so that the compiler neither merges accesses nor makes the loop a call of memcpy.
using MappedVector [[gnu::may_alias]] = uint8x16_t;

struct Neon {
  static void store(Size<16>, void* mapped, const void* host) {
    *static_cast<volatile MappedVector*>(mapped) = vld1q_u8(static_cast<const Byte*>(host));
  }

  using Vector = uint8x16_t;
  static constexpr std::size_t kVectorBytes = 16;
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) {
    return *static_cast<const volatile MappedVector*>(mapped);
  }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) { vst1q_u8(static_cast<Byte*>(host), vector); }
};

}  // namespace

constinit const Store neon_store = store_range<Neon>;
constinit const Load neon_load = load_range<Neon>;

}  // namespace gigabar::kernels
