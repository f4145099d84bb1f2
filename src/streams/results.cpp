// SPDX-License-Identifier: Apache-2.0
#include "streams/results.hpp"

#include <algorithm>
#include <cstdio>

#include "base/errors.hpp"
#include "streams/measure.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr double kSerialised = 1.10;      // the sum of the parts over what crossed on the wall clock
constexpr double kMinBesidePercent = 90;  // of its time, which the shortest transfer spent beside all others

std::string rounded(double value) {
  char number[32];
  std::snprintf(number, sizeof number, "%.1f", value);
  return number;
}

// Why less was moved than the rates add up to. The overlap is of the shortest transfer: when that ran beside all others, what is
// left is that the others went on without it.
std::string why_serialised(double overlap_percent) {
  const std::string part = rounded(overlap_percent) + " % of its time";
  if (overlap_percent >= kMinBesidePercent) {
    return text("the shortest ran beside the others for ", part, ", and the longest went on without it; with the same seconds ",
                "for all they end together");
  }
  return text("the shortest ran beside all others for only ", part, ": they took turns, or began at different times");
}

std::string warn_serialised(const StreamTotal& total) {
  return text(total.group.empty() ? std::string("the transfers") : text("group ", total.group), ": their rates add up to ",
              rounded(total.sum_gb_per_s.median), " GB/s, but from the first begin to the last end only ",
              rounded(total.aggregate_gb_per_s.median), " GB/s were moved: ", why_serialised(total.overlap_percent.median));
}

}  // namespace

Results::Results(const StreamPlan& plan) : plan_(plan), transfers_(plan.transfers.size()) {
  groups_.emplace_back();
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    const Transfer& transfer = plan.transfers[i];
    if (!transfer.is_background) groups_.front().members.push_back(i);
    if (transfer.group.empty()) continue;
    auto group = std::find_if(groups_.begin() + 1, groups_.end(), [&](const OfGroup& each) { return each.name == transfer.group; });
    if (group == groups_.end()) {
      groups_.emplace_back().name = transfer.group;
      group = std::prev(groups_.end());
    }
    group->members.push_back(i);
  }
}

void Results::add_total(OfGroup& group, std::span<const Timeline> timelines) {
  std::vector<const Timeline*> members;
  for (const std::size_t index : group.members) members.push_back(&timelines[index]);
  const auto all = together(members);
  if (!all) return;
  group.aggregate.push_back(all->aggregate_gb_per_s);
  group.sum.push_back(all->sum_gb_per_s);
  group.overlap.push_back(all->overlap_percent);
}

void Results::add_repeat(std::span<const std::unique_ptr<TransferRun>> runs) {
  std::vector<Timeline> timelines(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    timelines[i].is_background = plan_.transfers[i].is_background;
    if (runs[i] != nullptr && !runs[i]->has_failed()) timelines[i].parts = runs[i]->parts;
  }
  const auto window = common_window(timelines);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Timeline& timeline = timelines[i];
    if (!timeline.has_run()) continue;
    OfTransfer& results = transfers_[i];
    results.bytes += timeline.bytes();
    results.seconds.push_back(static_cast<double>(timeline.end_ns() - timeline.begin_ns()) / 1e9);
    results.latencies_us.insert(results.latencies_us.end(), runs[i]->latencies_us.begin(), runs[i]->latencies_us.end());
    if (timeline.bytes() == 0) continue;
    results.life.push_back(life_rate(timeline));
    if (window) results.window.push_back(window_rate(timeline, *window));
  }
  for (OfGroup& group : groups_) add_total(group, timelines);
}

void Results::finish(StreamReport& report) const {
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    TransferReport& told = report.transfers[i];
    told.life_gb_per_s = figure_of(transfers_[i].life);
    told.window_gb_per_s = figure_of(transfers_[i].window);
    told.seconds = figure_of(transfers_[i].seconds);
    told.latency = latency_of(transfers_[i].latencies_us);
    told.bytes_moved = transfers_[i].bytes;
    const StreamFigure& judged = told.transfer.is_background ? told.window_gb_per_s : told.life_gb_per_s;
    if (told.link.gb_per_s > 0) told.ratio = judged.median / told.link.gb_per_s;
  }
  for (const OfGroup& group : groups_) {
    if (group.aggregate.empty()) continue;
    StreamTotal total{group.name, figure_of(group.aggregate), figure_of(group.sum), figure_of(group.overlap)};
    if (group.members.size() > 1 && total.sum_gb_per_s.median > total.aggregate_gb_per_s.median * kSerialised) {
      report.warnings.push_back(warn_serialised(total));
    }
    report.totals.push_back(std::move(total));
  }
}

}  // namespace gigabar::inline v0
