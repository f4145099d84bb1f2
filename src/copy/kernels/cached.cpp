// SPDX-License-Identifier: Apache-2.0
// Coherent memory: what memcpy does best, except for single words. Those are release stores and acquire loads, free on x86-64, so
// that a flag written here orders the data before it for any reader.
#include <cstring>

#include "copy/kernels/entries.hpp"
#include "copy/kernels/stream_loop.hpp"

namespace gigabar::kernels {
namespace {

template <std::size_t kBytes>
void store_word(void* mapped, const void* host) {
  typename Scalar<kBytes>::Type value;
  __builtin_memcpy(&value, host, kBytes);
  __atomic_store_n(static_cast<typename Scalar<kBytes>::Type*>(mapped), value, __ATOMIC_RELEASE);
}

template <std::size_t kBytes>
void load_word(void* host, const void* mapped) {
  const auto value = __atomic_load_n(static_cast<const typename Scalar<kBytes>::Type*>(mapped), __ATOMIC_ACQUIRE);
  __builtin_memcpy(host, &value, kBytes);
}

}  // namespace

void cached_store(void* mapped_destination, const void* source, size_t bytes) noexcept {
  if (bytes == 0) return;  // memcpy may not be given a null source
  if (!is_single_access(mapped_destination, bytes)) {
    std::memcpy(mapped_destination, source, bytes);
    return;
  }
  if (bytes == 8) return store_word<8>(mapped_destination, source);
  if (bytes == 4) return store_word<4>(mapped_destination, source);
  if (bytes == 2) return store_word<2>(mapped_destination, source);
  store_word<1>(mapped_destination, source);
}

void cached_load(void* destination, const void* mapped_source, size_t bytes) noexcept {
  if (bytes == 0) return;
  if (!is_single_access(mapped_source, bytes)) {
    std::memcpy(destination, mapped_source, bytes);
    return;
  }
  if (bytes == 8) return load_word<8>(destination, mapped_source);
  if (bytes == 4) return load_word<4>(destination, mapped_source);
  if (bytes == 2) return load_word<2>(destination, mapped_source);
  load_word<1>(destination, mapped_source);
}

}  // namespace gigabar::kernels
