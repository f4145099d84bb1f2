// SPDX-License-Identifier: Apache-2.0
// The CPU's time stamp counter, cheaper to read than clock_gettime. Two moments on both clocks give its rate.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/clock.hpp"

namespace gigabar::inline v0 {

// Cycles since some moment; 0 on a CPU without a counter that user programs can read.
inline std::uint64_t cycle_count() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return 0;
#endif
}

// One moment on both clocks. Two of them give the counter's rate.
struct CycleMoment {
  std::int64_t ns = now_ns();
  std::uint64_t cycles = cycle_count();
};

// The counter's rate between two moments; 0 without a counter or without time between them.
inline std::uint32_t cycles_per_ms(const CycleMoment& begin, const CycleMoment& end) noexcept {
  if (end.ns <= begin.ns || end.cycles <= begin.cycles) return 0;
  return static_cast<std::uint32_t>(static_cast<double>(end.cycles - begin.cycles) * 1e6 / static_cast<double>(end.ns - begin.ns));
}

}  // namespace gigabar::inline v0
