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

// How much more time each candidate takes than the best one at each size: the sum of the logarithms.
std::vector<double> costs_of(std::span<const Curve> candidates) {
  std::vector<double> costs(candidates.size());
  for (std::size_t i = 0; i < candidates.front().median_us.size(); ++i) {
    double best = candidates.front().median_us[i];
    for (const Curve& candidate : candidates) best = std::min(best, candidate.median_us[i]);
    for (std::size_t c = 0; c < candidates.size(); ++c) costs[c] += std::log(candidates[c].median_us[i] / best);
  }
  return costs;
}

std::size_t least_of(std::span<const double> costs) {
  return static_cast<std::size_t>(std::ranges::min_element(costs) - costs.begin());
}

double percent_of(double saved) { return 100 * (std::exp(saved) - 1); }

// On straight lines in the logarithms; nothing when the ways do not change places there.
std::optional<double> crossover(std::span<const std::uint64_t> sizes, std::size_t index, const Curve& first, const Curve& second) {
  if (index == 0) return {};
  const double below = std::log(second.median_us[index - 1] / first.median_us[index - 1]);
  const double above = std::log(second.median_us[index] / first.median_us[index]);
  if (below < 0 || above > 0 || below == above) return {};
  const double part = below / (below - above);
  return static_cast<double>(sizes[index - 1]) *
         std::pow(static_cast<double>(sizes[index]) / static_cast<double>(sizes[index - 1]), part);
}

}  // namespace

Split split_between(std::span<const std::uint64_t> sizes, const Curve& first, const Curve& second) {
  // By how many of the largest sizes the second way takes: none, one, ... all of them.
  std::vector<Curve> candidates(sizes.size() + 1, first);
  for (std::size_t taken = 1; taken < candidates.size(); ++taken) {
    std::ranges::copy_backward(std::span(second.median_us).last(taken), candidates[taken].median_us.end());
  }
  const std::vector<double> costs = costs_of(candidates);
  const std::size_t taken = least_of(costs);
  const double saved = taken == 0 ? 0 : (costs[0] - costs[taken]) / static_cast<double>(taken);
  Split split;
  if (saved <= std::log(kWorthIt)) {
    const std::string range = fmt::format("{} to {}", bytes_text(sizes.front()), bytes_text(sizes.back()));
    if (costs[0] == 0) {
      split.why = fmt::format("{} is at no size slower, {}", first.name, range);
    } else if (saved == 0) {
      split.why = fmt::format("there is no size from which on {} is the faster one, {}", second.name, range);
    } else {
      split.why = fmt::format("where {} is the faster one it saves {:.1f} %: less than the 3 % that would be worth it", second.name,
                              percent_of(saved));
    }
    return split;
  }
  const std::size_t index = sizes.size() - taken;
  split.limit_bytes = index == 0 ? 0 : sizes[index - 1];
  split.threshold_bytes = sizes[index];
  split.crossover_bytes = crossover(sizes, index, first, second);
  const std::string where = index == 0 ? fmt::format("{} is the faster one from {} on", second.name, bytes_text(sizes[0]))
                                       : fmt::format("above {} {} is the faster one", bytes_text(split.limit_bytes), second.name);
  split.why = fmt::format("{}, by {:.0f} % on average", where, percent_of(saved));
  return split;
}

Pick pick_nearest_to_best(std::span<const Curve> candidates, std::size_t usual) {
  std::vector<double> costs = costs_of(candidates);
  for (double& cost : costs) cost /= static_cast<double>(candidates.front().median_us.size());
  const std::size_t best = least_of(costs);
  const double saved = costs[usual] - costs[best];
  if (best == usual) return {usual, "the best over all sizes, and the default"};
  if (saved <= std::log(kWorthIt)) {
    return {usual, fmt::format("the default; {} is {:.1f} % better on average, less than the 3 % that would be worth it",
                               candidates[best].name, percent_of(saved))};
  }
  return {best, fmt::format("{:.0f} % better on average than the default, {}", percent_of(saved), candidates[usual].name)};
}

}  // namespace gigabar::tool::ranks
