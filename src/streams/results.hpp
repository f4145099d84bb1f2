// SPDX-License-Identifier: Apache-2.0
// From the repeats to the report.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gigabar/streams.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {

class Results {
 public:
  explicit Results(const StreamPlan& plan);

  // Takes over what one repeat measured. `runs` by index in the plan; null for a transfer that did not run.
  void add_repeat(std::span<const std::unique_ptr<TransferRun>> runs);
  // Figures of all repeats, totals and warnings are put into `report`, whose transfers are in the plan's order.
  void finish(StreamReport& report) const;

 private:
  struct OfTransfer {
    std::vector<double> life, window, seconds, latencies_us;
    std::uint64_t bytes = 0;
  };
  struct OfGroup {
    std::string name;
    std::vector<std::size_t> members;
    std::vector<double> aggregate, sum, overlap;
  };
  void add_total(OfGroup& group, std::span<const Timeline> timelines);

  const StreamPlan& plan_;
  std::vector<OfTransfer> transfers_;
  std::vector<OfGroup> groups_;  // all of the foreground first
};

}  // namespace gigabar::inline v0
