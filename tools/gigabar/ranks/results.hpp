// SPDX-License-Identifier: Apache-2.0
// From what each rank measured to the figures of one size, and how they are shown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/fabric.hpp"
#include "ranks/plan.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::ranks {

// --- Paths: which one operations took, as their reports say ---------------------------------------------------------------------

struct PathUse {
  std::string text;              // "verbs staged (rxe0/1)"; empty: no operation
  Json detail = Json::object();  // of the last one, and every other that differs
};

// "local p2p", "verbs gdr (mlx5_0/1, mlx5_1/1)"; the transport alone when nothing was to be moved. The rail of the local transport
// is never a choice and is left out.
std::string path_text(const OperationReport& report);
Json to_json(const OperationReport& report);
// Of a few operations of one size. Where they differ (rails taking turns, say) each text stands once, in order of appearance.
PathUse path_use_of(std::span<const OperationReport> reports);

// --- Measurements ---------------------------------------------------------------------------------------------------------------

// What one rank saw. Samples are of the active rank of a pair: half a round trip, a whole read, or a whole window; of several
// threads, those of one behind those of another.
struct Measurement : Complaint {
  std::vector<std::uint64_t> samples_ps;
  PathUse path;  // of the operations that this rank posted; without text when it posted none that moved the data
};

// Of the threads of one rank, which have as many samples each.
Measurement joined(std::vector<Measurement> of_threads);

// For the way from a rank to rank 0. What another process sent is not trusted: nothing when it is no measurement.
std::string encode(const Measurement& measurement);
std::optional<Measurement> decode(std::string_view bytes);

struct SizeResult : Complaint {
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
};

// `by_rank[i]` is rank i's. At least two per pair.
SizeResult combine(const Plan& plan, std::uint64_t bytes, std::uint32_t pair_count, std::span<const Measurement> by_rank);

// How many times better `result` is than `other`, by the medians; 0 when there is nothing to compare.
double ratio_of(Measure measure, const SizeResult& result, const SizeResult& other) noexcept;

// --- What rank 0 prints ---------------------------------------------------------------------------------------------------------
//
// What does not begin with '#' is data, and its first columns are those of the OSU micro-benchmarks, to the letter, so that what
// reads theirs reads these.

// "# Gigabar 0.1.0 Latency Test", whose buffers are where, what is timed, pairs and window; each line with its end.
std::string title_lines(const Plan& plan, std::string_view version, std::uint32_t pair_count);
// One size. `other`: the same with gdr and p2p forbidden; null without --compare.
Row row_of(const Plan& plan, const SizeResult& result, const SizeResult* other);

}  // namespace gigabar::tool::ranks
