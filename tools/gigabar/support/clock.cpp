// SPDX-License-Identifier: Apache-2.0
#include "support/clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gigabar::tool {
namespace {

#if defined(__x86_64__)
// Source: Intel SDM vol. 3 §17.17.1 (invariant TSC), vol. 2 CPUID leaves 80000001H and 80000007H.
bool has_invariant_counter() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) == 0 || (edx & (1U << 27)) == 0) return false;  // rdtscp
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0;
}

double counter_ns_per_tick() {
  constexpr std::uint64_t kHalfNs = 20'000'000;
  unsigned processor = 0;
  const std::uint64_t start_ns = monotonic_ns();
  const std::uint64_t start_ticks = __rdtscp(&processor);
  std::uint64_t end_ns = start_ns;
  while (end_ns < start_ns + kHalfNs) end_ns = monotonic_ns();
  const std::uint64_t end_ticks = __rdtscp(&processor);
  if (end_ticks <= start_ticks) return 0.0;
  return static_cast<double>(end_ns - start_ns) / static_cast<double>(end_ticks - start_ticks);
}
#endif

}  // namespace

double SampleClock::measure_cost() const {
  constexpr std::size_t kReadings = 10001;
  std::vector<std::uint64_t> ticks(kReadings);
  for (std::uint64_t& sample : ticks) {
    const std::uint64_t start = now();
    sample = now() - start;
  }
  std::nth_element(ticks.begin(), ticks.begin() + kReadings / 2, ticks.end());
  return static_cast<double>(ticks[kReadings / 2]) * ns_per_tick_;
}

SampleClock SampleClock::calibrate() {
  SampleClock system;
  system.cost_ns_ = system.measure_cost();
#if defined(__x86_64__)
  if (has_invariant_counter()) {
    const double first = counter_ns_per_tick();
    const double second = counter_ns_per_tick();
    SampleClock counter;
    counter.is_counter_ = true;
    counter.ns_per_tick_ = (first + second) / 2;
    counter.cost_ns_ = counter.measure_cost();
    const bool is_steady = second > 0 && std::abs(first - second) < 1e-3 * second;
    // On equal terms the counter: clock_gettime reads it too, but does not hold back what stands around it.
    if (is_steady && counter.cost_ns_ <= 1.1 * system.cost_ns_) return counter;
  }
#endif
  return system;
}

}  // namespace gigabar::tool
