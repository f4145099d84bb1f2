// SPDX-License-Identifier: Apache-2.0
// The clock of single samples: the time-stamp counter, unless clock_gettime is cheaper; calibrated, with its own cost measured.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gigabar::tool {

inline std::uint64_t monotonic_ns() noexcept { return static_cast<std::uint64_t>(now_ns()); }

inline void spin(std::uint64_t duration_ns) noexcept {
  const std::uint64_t until_ns = monotonic_ns() + duration_ns;
  while (monotonic_ns() < until_ns) {
  }
}

class SampleClock {
 public:
  // Compares the counter with CLOCK_MONOTONIC for about 40 ms; a counter that is not invariant, or whose two halves of that time
  // disagree, is not used.
  static SampleClock calibrate();

  // A reading in ticks. On x86-64: everything before it has executed, nothing after it has started (rdtscp, then lfence).
  std::uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (is_counter_) {
      unsigned processor = 0;
      const std::uint64_t ticks = __rdtscp(&processor);
      _mm_lfence();
      return ticks;
    }
#endif
    return monotonic_ns();
  }

  std::string_view name() const noexcept { return is_counter_ ? "rdtscp" : "clock_gettime"; }
  double ns_per_tick() const noexcept { return ns_per_tick_; }
  // Median time between two readings with nothing between them: it is contained in every sample and is not subtracted.
  double cost_ns() const noexcept { return cost_ns_; }

 private:
  double measure_cost() const;
  bool is_counter_ = false;
  double ns_per_tick_ = 1.0;
  double cost_ns_ = 0.0;
};

}  // namespace gigabar::tool
