// SPDX-License-Identifier: Apache-2.0
// Coherent memory: what memcpy does best, except for single words. Those are release stores and acquire loads, free on x86-64, so
// that a flag written here orders the data before it for any reader.
#include <cstring>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {

void cached_store(void* mapped_destination, const void* source, size_t bytes) noexcept {
  if (is_single_access(mapped_destination, bytes)) return store_single<__ATOMIC_RELEASE>(mapped_destination, source, bytes);
  if (bytes != 0) std::memcpy(mapped_destination, source, bytes);  // it may not be given a null source
}

void cached_load(void* destination, const void* mapped_source, size_t bytes) noexcept {
  if (is_single_access(mapped_source, bytes)) return load_single<__ATOMIC_ACQUIRE>(destination, mapped_source, bytes);
  if (bytes != 0) std::memcpy(destination, mapped_source, bytes);
}

}  // namespace gigabar::kernels
