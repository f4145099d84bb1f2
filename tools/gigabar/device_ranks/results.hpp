// SPDX-License-Identifier: Apache-2.0
// From the samples of a kernel's units to the figures of one size, and how they are shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device_ranks/complaint.hpp"
#include "device_ranks/kernels.hpp"
#include "device_ranks/plan.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::device_ranks {

struct SizeResult {
  std::uint64_t bytes = 0;       // of a message, as asked for
  Summary summary;               // of half a round trip or a whole one, of single units; of a window, of all units together
  double figure = 0;             // the mean in microseconds; GB/s; million messages per second
  double p50 = 0, p99 = 0;       // of the samples, in the figure's unit: 99 of 100 are at least as good as p99
  double ns_per_tick = 0;        // of the first unit's clock, over the whole run
  std::uint32_t unit_count = 1;  // that had a part of the message
  Complaint complaint;
};
// Whether a sample is halved: a round trip there and back by messages of one kind.
bool is_halved(const RoundPlan& plan) noexcept;
// `run`: of the active rank.
SizeResult summarize_rounds(const RoundPlan& plan, std::uint64_t bytes, const KernelRun& run);

std::string what_is_timed(const Options& options);
TextTable make_table(const Options& options);
std::vector<std::string> row_of(const Options& options, const SizeResult& result, const std::string& path);
Json to_json(const Options& options, const Grid& grid, const SizeResult& result, const std::string& path);

}  // namespace gigabar::tool::device_ranks
