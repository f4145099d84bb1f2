// SPDX-License-Identifier: Apache-2.0
// What is said about a set of single samples. Percentiles are real ones: each is a sample that was measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gigabar::tool {

struct Summary {
  std::size_t sample_count = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
  double mean_us = 0;
};

// Index of the nearest-rank percentile in `count` (> 0) ascending samples: the least one that at least `fraction` of them do not
// exceed. With fewer than 100 samples the 99th percentile is the largest.
std::size_t percentile_index(std::size_t count, double fraction) noexcept;

// Sorts `ticks`. All zero for no samples.
Summary summarize(std::span<std::uint64_t> ticks, double ns_per_tick);
inline constexpr double kNsPerPs = 0.001;  // of samples in picoseconds

// Sorts `values`; the middle one, or the mean of the middle two. 0 for none.
double median(std::span<double> values);

}  // namespace gigabar::tool
