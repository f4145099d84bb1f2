// SPDX-License-Identifier: Apache-2.0
#include "support/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gigabar::tool {

std::size_t percentile_index(std::size_t count, double fraction) noexcept {
  // Without the small amount taken off, 0.99 * 100 (99.00000000000001 in some roundings) would ask for the 100th of 100.
  const double rank = std::ceil(fraction * static_cast<double>(count) - 1e-9);
  const auto wanted = static_cast<std::size_t>(std::max(rank, 1.0));
  return std::min(wanted, count) - 1;
}

Summary summarize(std::span<std::uint64_t> ticks, double ns_per_tick) {
  if (ticks.empty()) return {};
  std::sort(ticks.begin(), ticks.end());
  const double us_per_tick = ns_per_tick / 1000.0;
  const auto us = [&](std::size_t index) { return static_cast<double>(ticks[index]) * us_per_tick; };
  const double sum = std::accumulate(ticks.begin(), ticks.end(), 0.0);
  return {.sample_count = ticks.size(),
          .min_us = us(0),
          .p50_us = us(percentile_index(ticks.size(), 0.50)),
          .p99_us = us(percentile_index(ticks.size(), 0.99)),
          .max_us = us(ticks.size() - 1),
          .mean_us = sum * us_per_tick / static_cast<double>(ticks.size())};
}

double median(std::span<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  return std::midpoint(values[(values.size() - 1) / 2], values[values.size() / 2]);  // of an odd number: the middle one twice
}

}  // namespace gigabar::tool
