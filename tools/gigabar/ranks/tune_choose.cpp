// SPDX-License-Identifier: Apache-2.0
#include "ranks/tune_choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/report.hpp"

namespace gigabar::tool::ranks {
namespace {

// What the next measurement may take back is no reason to leave what is usual.
constexpr double kWorthIt = 1.03;

// How much more time `taken` takes than `other` where it is the worse one, as a logarithm; 0 where it is the better one.
double excess(double taken, double other) { return std::max(0.0, std::log(taken / other)); }

double cost_of(std::size_t index, const Curve& first, const Curve& second) {
  double cost = 0;
  for (std::size_t i = 0; i < first.median_us.size(); ++i) {
    cost += i < index ? excess(first.median_us[i], second.median_us[i]) : excess(second.median_us[i], first.median_us[i]);
  }
  return cost;
}

// On straight lines in the logarithms; nothing when the ways do not change places there.
std::optional<double> crossover(std::span<const std::uint64_t> sizes, std::size_t index, const Curve& first, const Curve& second) {
  if (index == 0 || index == sizes.size()) return {};
  const double below = std::log(second.median_us[index - 1] / first.median_us[index - 1]);
  const double above = std::log(second.median_us[index] / first.median_us[index]);
  if (below < 0 || above > 0 || below == above) return {};
  const double part = below / (below - above);
  return static_cast<double>(sizes[index - 1]) *
         std::pow(static_cast<double>(sizes[index]) / static_cast<double>(sizes[index - 1]), part);
}

std::string range_text(std::span<const std::uint64_t> sizes) {
  return fmt::format("{} to {}", bytes_text(sizes.front()), bytes_text(sizes.back()));
}

}  // namespace

Split split_between(std::span<const std::uint64_t> sizes, const Curve& first, const Curve& second) {
  const std::size_t all = sizes.size();
  Split split;
  split.index = all;
  double least = cost_of(all, first, second);
  const double keeping = least;
  for (std::size_t index = all; index-- > 0;) {
    const double cost = cost_of(index, first, second);
    if (cost < least) {
      least = cost;
      split.index = index;
    }
  }
  const double saved = split.index == all ? 0 : (keeping - least) / static_cast<double>(all - split.index);
  if (saved <= std::log(kWorthIt)) {
    split.index = all;
    if (keeping == 0) {
      split.why = fmt::format("{} is at no size slower, {}", first.name, range_text(sizes));
    } else if (saved == 0) {
      split.why = fmt::format("there is no size from which on {} is the faster one, {}", second.name, range_text(sizes));
    } else {
      split.why = fmt::format("where {} is the faster one it saves {:.1f} %: less than the 3 % that would be worth it", second.name,
                              100 * (std::exp(saved) - 1));
    }
    return split;
  }
  split.crossover_bytes = crossover(sizes, split.index, first, second);
  if (split.index == 0) {
    split.why = fmt::format("{} is the faster one from {} on, by {:.0f} % on average", second.name, bytes_text(sizes.front()),
                            100 * (std::exp(saved) - 1));
  } else {
    split.why = fmt::format("above {} {} is the faster one, by {:.0f} % on average", bytes_text(sizes[split.index - 1]),
                            second.name, 100 * (std::exp(saved) - 1));
  }
  return split;
}

std::uint64_t limit_of(std::span<const std::uint64_t> sizes, const Split& split) noexcept {
  if (split.index == sizes.size()) return kUnlimitedBytes;
  return split.index == 0 ? 0 : sizes[split.index - 1];
}

std::uint64_t threshold_of(std::span<const std::uint64_t> sizes, const Split& split) noexcept {
  return split.index == sizes.size() ? kUnlimitedBytes : sizes[split.index];
}

Pick pick_nearest_to_best(std::span<const Curve> candidates, std::size_t usual) {
  const std::size_t size_count = candidates.front().median_us.size();
  std::vector<double> costs(candidates.size(), 0);
  for (std::size_t i = 0; i < size_count; ++i) {
    double best = candidates.front().median_us[i];
    for (const Curve& candidate : candidates) best = std::min(best, candidate.median_us[i]);
    for (std::size_t c = 0; c < candidates.size(); ++c) costs[c] += std::log(candidates[c].median_us[i] / best);
  }
  for (double& cost : costs) cost /= static_cast<double>(size_count);
  const auto best = static_cast<std::size_t>(std::min_element(costs.begin(), costs.end()) - costs.begin());
  const double gain = 100 * (std::exp(costs[usual] - costs[best]) - 1);
  if (costs[usual] - costs[best] <= std::log(kWorthIt)) {
    return {usual, best == usual
                       ? "the best over all sizes, and the default"
                       : fmt::format("the default; {} is {:.1f} % better on average, less than the 3 % that would be worth it",
                                     candidates[best].name, gain)};
  }
  return {best, fmt::format("{:.0f} % better on average than the default, {}", gain, candidates[usual].name)};
}

}  // namespace gigabar::tool::ranks
