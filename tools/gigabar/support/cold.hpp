// Takes a range out of every cache of the CPU, so that the next access goes to memory.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gigabar::tool {

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

}  // namespace gigabar::tool
