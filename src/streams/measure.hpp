// SPDX-License-Identifier: Apache-2.0
// From marks on a clock to rates: what each transfer moved over its life and inside the time that all had in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gigabar/streams.hpp"

namespace gigabar::inline v0 {

// At `at_ns` of the CPU's monotonic clock a CUDA stream or a CPU thread had moved `bytes` of its part of a transfer. Its first mark
// is its begin, with 0 bytes, its last mark the end of its last copy.
struct Mark {
  std::int64_t at_ns = 0;
  std::uint64_t bytes = 0;
};

using Marks = std::vector<Mark>;

struct TimeWindow {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

struct Timeline {
  std::vector<Marks> parts;  // one for each stream or thread
  bool is_background = false;

  // From the first begin to the last end; nothing when no part has both.
  std::optional<TimeWindow> life() const noexcept;
  std::uint64_t bytes() const noexcept;
  // Moved by `at_ns`, between marks in proportion to the time.
  double bytes_until(std::int64_t at_ns) const noexcept;
};

// The time in which every timeline that is not in the background ran; nothing when there is no such time.
std::optional<TimeWindow> common_window(std::span<const Timeline> timelines);

// 10^9 bytes per second; 0 when no time has passed.
double life_rate(const Timeline& timeline);
double window_rate(const Timeline& timeline, const TimeWindow& window);

struct Together {
  double aggregate_gb_per_s = 0;
  double sum_gb_per_s = 0;
  double overlap_percent = 0;
};
// Of those that ran; nothing when none did.
std::optional<Together> together(std::span<const Timeline* const> timelines);

// With one digit behind the point.
std::string rounded(double value);

// Median and extremes of the samples.
StreamFigure figure_of(std::vector<double> samples);
// Of single samples in microseconds. Nothing for none.
std::optional<StreamLatency> latency_of(std::vector<double> samples_us);

// From the repeats to the report, whose transfers are in the plan's order.
class TransferRun;
class Results {
 public:
  explicit Results(const StreamPlan& plan);

  // Adds what one repeat measured to the samples. `runs` by index in the plan; null for a transfer that did not run.
  void add_repeat(std::span<const std::unique_ptr<TransferRun>> runs, StreamReport& report);
  // Figures of all repeats, totals and warnings are put into `report`.
  void finish(StreamReport& report);

 private:
  struct Group {
    StreamTotal total;
    std::vector<std::size_t> members;
  };
  const StreamPlan& plan_;
  std::vector<std::vector<double>> latencies_us_;  // of each transfer
  std::vector<Group> groups_;                      // all of the foreground first
};

}  // namespace gigabar::inline v0
