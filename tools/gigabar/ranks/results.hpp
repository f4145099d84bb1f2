// SPDX-License-Identifier: Apache-2.0
// From what each rank measured to the figures of one size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranks/exchange.hpp"
#include "ranks/plan.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::ranks {

// For the way from a rank to rank 0. What another process sent is not trusted: nothing when it is no measurement.
std::string encode(const Measurement& measurement);
std::optional<Measurement> decode(std::string_view bytes);

struct SizeResult {
  std::uint64_t bytes = 0;
  Counts counts;
  std::uint32_t pair_count = 1;
  Summary summary;            // of single samples of all pairs: one way, a read, or a window
  double figure = 0;          // OSU's: the mean in microseconds, or MB/s of all pairs together
  double p50 = 0;             // of the samples, in the figure's unit; of a bandwidth, one pair's
  double p99 = 0;             // 99 of 100 samples are at least as good
  double messages_per_s = 0;  // of all pairs; bandwidths only
  std::vector<double> pair_mb_per_s;
  std::string path_text;
  PathUse path;       // of rank 0's operations
  PathUse back_path;  // of its partner's, when that one moved data too
  std::uint64_t wrong_count = 0;
  std::string first_wrong;  // "rank 1: ..."
};

// `by_rank[i]` is rank i's. At least two per pair.
SizeResult combine(const Plan& plan, std::uint64_t bytes, std::uint32_t pair_count, std::span<const Measurement> by_rank);

// How many times better `result` is than `other`, by the medians; 0 when there is nothing to compare.
double ratio_of(Measure measure, const SizeResult& result, const SizeResult& other) noexcept;

Json to_json(const Plan& plan, const SizeResult& result);

}  // namespace gigabar::tool::ranks
