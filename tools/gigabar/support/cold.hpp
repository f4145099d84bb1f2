// SPDX-License-Identifier: Apache-2.0
// The state of the CPU's caches before a copy.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gigabar::tool {

// Takes a range out of every cache of the CPU, so that the next access goes to memory.
inline void evict(const void* address, std::size_t bytes) noexcept {
  constexpr std::uintptr_t kLine = 64;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t line = start & ~(kLine - 1); line < start + bytes; line += kLine) {
#if defined(__x86_64__)
    _mm_clflush(reinterpret_cast<const void*>(line));
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" ::"r"(line) : "memory");
#endif
  }
#if defined(__x86_64__)
  _mm_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb sy" ::: "memory");
#endif
}

// Writes every line of a range again, with what it holds: then it is as if the calling thread had just made the data. A copy engine
// reads such lines out of that CPU's own cache, which takes longer than reading what several CPUs have read before.
inline void write_again(std::byte* address, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += 64) {
    volatile std::byte& byte = address[i];
    byte = static_cast<std::byte>(byte);
  }
}

}  // namespace gigabar::tool
