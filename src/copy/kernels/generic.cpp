// SPDX-License-Identifier: Apache-2.0
// What every CPU has. Naturally aligned accesses of at most 8 bytes: right for every mapping type, and the only ones that uncached
// memory allows. And for coherent memory what memcpy does best, except for single words.
#include <cstring>

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

// Single words are release stores and acquire loads, free on x86-64, so that a flag written here orders the data before it for any
// reader.
void cached_store(void* mapped_destination, const void* source, size_t bytes) noexcept {
  if (is_single_access(mapped_destination, bytes)) return store_single<__ATOMIC_RELEASE>(mapped_destination, source, bytes);
  if (bytes != 0) std::memcpy(mapped_destination, source, bytes);  // it may not be given a null source
}

void cached_load(void* destination, const void* mapped_source, size_t bytes) noexcept {
  if (is_single_access(mapped_source, bytes)) return load_single<__ATOMIC_ACQUIRE>(destination, mapped_source, bytes);
  if (bytes != 0) std::memcpy(destination, mapped_source, bytes);
}

}  // namespace gigabar::kernels
