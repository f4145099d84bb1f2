// SPDX-License-Identifier: Apache-2.0
#include "support/race.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

namespace gigabar::tool {
namespace {

constexpr std::size_t kBlock = 16;  // samples in one turn: long enough to be in the steady state, short against drift

// A block of a contender: caches, predictors and the link have just served another one, so some calls go first untimed.
bool run_turn(Contender& contender, const SampleClock& clock, std::size_t count) {
  const std::size_t start = contender.ticks.size();
  contender.ticks.resize(start + count);
  if (contender.before_block) contender.before_block();
  return contender.run_block(clock, std::span(contender.ticks).subspan(start), contender.warm_up_count, contender.burst_count);
}

}  // namespace

double estimate_ns(Contender& contender, const SampleClock& clock) {
  std::array<std::uint64_t, 3> ticks{};
  contender.run_block(clock, ticks, 1, 1);
  return static_cast<double>(*std::min_element(ticks.begin(), ticks.end())) * clock.ns_per_tick();
}

std::size_t affordable_count(double call_ns, double budget_ns, std::size_t most) noexcept {
  const double count = budget_ns / std::max(call_ns, 1.0);
  const std::size_t affordable = count >= static_cast<double>(most) ? most : static_cast<std::size_t>(count);
  return std::max(affordable, std::min(most, kMinSamples));
}

const Contender* race_round(std::span<Contender> contenders, const SampleClock& clock, std::size_t round_count, std::size_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::size_t> left(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const std::size_t part = (contenders[i].wanted_count + round_count - 1) / round_count;
    left[i] = std::min(part, contenders[i].wanted_count - std::min(contenders[i].wanted_count, contenders[i].ticks.size()));
  }
  bool is_done = false;
  while (!is_done) {
    is_done = true;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      const std::size_t count = std::min(left[i], kBlock);
      if (count == 0) continue;
      if (!run_turn(contenders[i], clock, count)) return &contenders[i];
      left[i] -= count;
      is_done = false;
    }
  }
  return nullptr;
}

}  // namespace gigabar::tool
