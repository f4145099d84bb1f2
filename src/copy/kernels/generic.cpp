// SPDX-License-Identifier: Apache-2.0
// Naturally aligned accesses of at most 8 bytes: right on every CPU and for every mapping type, and the only ones that uncached
// memory allows.
#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

struct Generic {
  using Vector = std::uint64_t;
  static constexpr std::size_t kVectorBytes = 8;
  [[gnu::always_inline]] static Vector load_mapped(const void* mapped) { return load_scalar<8>(mapped); }
  [[gnu::always_inline]] static void store_host(void* host, Vector vector) { __builtin_memcpy(host, &vector, sizeof vector); }
};

}  // namespace

void generic_store(void* mapped_destination, const void* source, size_t bytes) noexcept {
  store_range<Generic>(mapped_destination, source, bytes);
}

void generic_load(void* destination, const void* mapped_source, size_t bytes) noexcept {
  load_range<Generic>(destination, mapped_source, bytes);
}

}  // namespace gigabar::kernels
