// SPDX-License-Identifier: Apache-2.0
// From measured curves to limits. Nothing here knows ranks or devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gigabar::tool::ranks {

inline constexpr std::uint64_t kUnlimitedBytes = std::uint64_t{1} << 62;

// Medians of one way at each size, in microseconds.
struct Curve {
  std::string name;
  std::vector<double> median_us;
};

// Where one way is to end and the next to begin.
struct Split {
  std::uint64_t limit_bytes = kUnlimitedBytes;      // up to here the first way: 0, a size, or kUnlimitedBytes
  std::uint64_t threshold_bytes = kUnlimitedBytes;  // from here on the second way: a size, or kUnlimitedBytes
  std::optional<double> crossover_bytes;            // between these two, where both take equally long
  std::string why;
};

// The split that costs least over all sizes, each counting alike by its ratio to the better way there. The first way keeps
// everything unless the second one saves more than 3 % on average over the sizes that it would take.
Split split_between(std::span<const std::uint64_t> sizes, const Curve& first, const Curve& second);

struct Pick {
  std::size_t index = 0;
  std::string why;
};
// The candidate that is nearest to the best over all sizes; `usual` unless another is more than 3 % better on average.
Pick pick_nearest_to_best(std::span<const Curve> candidates, std::size_t usual);

}  // namespace gigabar::tool::ranks
