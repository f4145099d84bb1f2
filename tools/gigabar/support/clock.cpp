// SPDX-License-Identifier: Apache-2.0
#include "support/clock.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/cycles.hpp"
#include "support/statistics.hpp"

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
  constexpr std::int64_t kHalfNs = 20'000'000;
  const CycleMoment start;
  CycleMoment end;
  while (end.ns < start.ns + kHalfNs) end = CycleMoment();
  if (end.cycles <= start.cycles) return 0.0;
  return static_cast<double>(end.ns - start.ns) / static_cast<double>(end.cycles - start.cycles);
}
#endif

}  // namespace

double SampleClock::measure_cost() const {
  std::vector<double> ticks(10001);
  for (double& sample : ticks) {
    const std::uint64_t start = now();
    sample = static_cast<double>(now() - start);
  }
  return median(ticks) * ns_per_tick_;
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

// Caches, predictors and the link have just served another contender, so some calls go first untimed.
bool Contender::take_samples(const SampleClock& clock, std::size_t count) {
  const std::size_t start = ticks.size();
  ticks.resize(start + count);
  return run_block(clock, std::span(ticks).subspan(start), warm_up_count, burst_count);
}

double estimate_ns(Contender& contender, const SampleClock& clock) {
  std::array<std::uint64_t, 3> ticks{};
  contender.run_block(clock, ticks, 1, 1);
  return static_cast<double>(*std::min_element(ticks.begin(), ticks.end())) * clock.ns_per_tick();
}

std::size_t affordable_count(double call_ns, double budget_ns, std::size_t most) noexcept {
  const auto least = static_cast<double>(std::min(most, kMinSamples));
  return static_cast<std::size_t>(std::clamp(budget_ns / std::max(call_ns, 1.0), least, static_cast<double>(most)));
}

const Contender* race_round(std::span<Contender* const> contenders, const SampleClock& clock, std::size_t round_count,
                            std::size_t seed) {
  constexpr std::size_t kBlock = 16;  // samples in one turn: long enough to be in the steady state, short against drift
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::vector<std::pair<Contender*, std::size_t>> left;  // and how many samples
  for (Contender* const each : contenders) {
    const std::size_t part = (each->wanted_count + round_count - 1) / round_count;
    const std::size_t count = std::min(part, each->wanted_count - std::min(each->wanted_count, each->ticks.size()));
    if (count != 0) left.emplace_back(each, count);
  }
  while (!left.empty()) {
    std::shuffle(left.begin(), left.end(), random);
    for (auto& [contender, count] : left) {
      const std::size_t block = std::min(count, kBlock);
      if (!contender->take_samples(clock, block)) return contender;
      count -= block;
    }
    std::erase_if(left, [](const auto& each) { return each.second == 0; });
  }
  return nullptr;
}

}  // namespace gigabar::tool
