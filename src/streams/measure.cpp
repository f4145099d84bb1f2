// SPDX-License-Identifier: Apache-2.0
#include "streams/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr double kSerialised = 1.10;      // the sum of the parts over what crossed on the wall clock
constexpr double kMinBesidePercent = 90;  // of its time, which the shortest transfer spent beside all others

double bytes_of_part_until(const Marks& marks, std::int64_t at_ns) {
  const auto next =
      std::upper_bound(marks.begin(), marks.end(), at_ns, [](std::int64_t at, const Mark& mark) { return at < mark.at_ns; });
  if (next == marks.begin()) return 0;
  const Mark& before = *std::prev(next);
  if (next == marks.end()) return static_cast<double>(before.bytes);
  const double part = static_cast<double>(at_ns - before.at_ns) / static_cast<double>(next->at_ns - before.at_ns);
  return static_cast<double>(before.bytes) + part * static_cast<double>(next->bytes - before.bytes);
}

double rate(double bytes, std::int64_t duration_ns) { return duration_ns > 0 ? bytes / static_cast<double>(duration_ns) : 0; }

// Less was moved than the rates add up to. The overlap is of the shortest transfer: when that ran beside all others, what is left
// is that the others went on without it.
std::string warn_serialised(const StreamTotal& total) {
  const std::string part = rounded(total.overlap_percent.median) + " % of its time";
  const std::string why =
      total.overlap_percent.median >= kMinBesidePercent
          ? text("the shortest ran beside the others for ", part,
                 ", and the longest went on without it; with the same seconds for all they end together")
          : text("the shortest ran beside all others for only ", part, ": they took turns, or began at different times");
  return text(total.group.empty() ? std::string("the transfers") : text("group ", total.group), ": their rates add up to ",
              rounded(total.sum_gb_per_s.median), " GB/s, but from the first begin to the last end only ",
              rounded(total.aggregate_gb_per_s.median), " GB/s were moved: ", why);
}

}  // namespace

std::optional<TimeWindow> Timeline::life() const noexcept {
  std::optional<TimeWindow> life;
  for (const Marks& marks : parts) {
    if (marks.size() < 2) continue;
    if (!life) life = {marks.front().at_ns, marks.back().at_ns};
    life->begin_ns = std::min(life->begin_ns, marks.front().at_ns);
    life->end_ns = std::max(life->end_ns, marks.back().at_ns);
  }
  return life;
}

std::uint64_t Timeline::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Marks& marks : parts) sum += marks.empty() ? 0 : marks.back().bytes;
  return sum;
}

double Timeline::bytes_until(std::int64_t at_ns) const noexcept {
  double sum = 0;
  for (const Marks& marks : parts) sum += bytes_of_part_until(marks, at_ns);
  return sum;
}

std::optional<TimeWindow> common_window(std::span<const Timeline> timelines) {
  TimeWindow window{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  bool has_any = false;
  for (const Timeline& timeline : timelines) {
    const auto life = timeline.life();
    if (timeline.is_background || !life) continue;
    has_any = true;
    window.begin_ns = std::max(window.begin_ns, life->begin_ns);
    window.end_ns = std::min(window.end_ns, life->end_ns);
  }
  if (!has_any || window.begin_ns >= window.end_ns) return {};
  return window;
}

double life_rate(const Timeline& timeline) {
  const auto life = timeline.life();
  return life ? rate(static_cast<double>(timeline.bytes()), life->end_ns - life->begin_ns) : 0;
}

double window_rate(const Timeline& timeline, const TimeWindow& window) {
  return rate(timeline.bytes_until(window.end_ns) - timeline.bytes_until(window.begin_ns), window.end_ns - window.begin_ns);
}

std::optional<Together> together(std::span<const Timeline* const> timelines) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  Together result;
  double bytes = 0;
  std::int64_t first_begin = kMost, last_begin = kLeast, first_end = kMost, last_end = kLeast, shortest_ns = kMost;
  for (const Timeline* timeline : timelines) {
    const auto life = timeline->life();
    if (!life || timeline->bytes() == 0) continue;
    const auto [begin, end] = *life;
    first_begin = std::min(first_begin, begin);
    last_begin = std::max(last_begin, begin);
    first_end = std::min(first_end, end);
    last_end = std::max(last_end, end);
    shortest_ns = std::min(shortest_ns, end - begin);
    bytes += static_cast<double>(timeline->bytes());
    result.sum_gb_per_s += life_rate(*timeline);
  }
  if (first_begin == kMost) return {};
  result.aggregate_gb_per_s = rate(bytes, last_end - first_begin);
  const std::int64_t common_ns = std::max<std::int64_t>(0, first_end - last_begin);
  result.overlap_percent = shortest_ns > 0 ? 100 * static_cast<double>(common_ns) / static_cast<double>(shortest_ns) : 0;
  return result;
}

std::string rounded(double value) {
  char number[32];
  std::snprintf(number, sizeof number, "%.1f", value);
  return number;
}

StreamFigure figure_of(std::vector<double> samples) {
  StreamFigure figure;
  if (samples.empty()) return figure;
  figure.samples = samples;
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  figure.median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  figure.min = samples.front();
  figure.max = samples.back();
  return figure;
}

std::optional<StreamLatency> latency_of(std::vector<double> samples_us) {
  if (samples_us.empty()) return {};
  std::sort(samples_us.begin(), samples_us.end());
  // Nearest rank: the least sample that at least this part of all does not exceed.
  const auto percentile = [&](double part) {
    const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(samples_us.size())));
    return samples_us[std::max<std::size_t>(rank, 1) - 1];
  };
  return StreamLatency{samples_us.size(), samples_us.front(), percentile(0.50), percentile(0.99), samples_us.back()};
}

Results::Results(const StreamPlan& plan) : plan_(plan), latencies_us_(plan.transfers.size()) {
  groups_.emplace_back();
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    const Transfer& transfer = plan.transfers[i];
    if (!transfer.is_background) groups_.front().members.push_back(i);
    if (transfer.group.empty()) continue;
    auto group =
        std::find_if(groups_.begin() + 1, groups_.end(), [&](const Group& each) { return each.total.group == transfer.group; });
    if (group == groups_.end()) {
      groups_.emplace_back().total.group = transfer.group;
      group = std::prev(groups_.end());
    }
    group->members.push_back(i);
  }
}

void Results::add_repeat(std::span<const std::unique_ptr<TransferRun>> runs, StreamReport& report) {
  std::vector<Timeline> timelines(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    timelines[i].is_background = plan_.transfers[i].is_background;
    if (runs[i] != nullptr && !runs[i]->has_failed()) timelines[i].parts = runs[i]->parts;
  }
  const auto window = common_window(timelines);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Timeline& timeline = timelines[i];
    const auto life = timeline.life();
    if (!life) continue;
    TransferReport& told = report.transfers[i];
    told.bytes_moved += timeline.bytes();
    told.seconds.samples.push_back(static_cast<double>(life->end_ns - life->begin_ns) / 1e9);
    latencies_us_[i].insert(latencies_us_[i].end(), runs[i]->latencies_us.begin(), runs[i]->latencies_us.end());
    if (timeline.bytes() == 0) continue;
    told.life_gb_per_s.samples.push_back(life_rate(timeline));
    if (window) told.window_gb_per_s.samples.push_back(window_rate(timeline, *window));
  }
  for (Group& group : groups_) {
    std::vector<const Timeline*> members;
    for (const std::size_t index : group.members) members.push_back(&timelines[index]);
    const auto all = together(members);
    if (!all) continue;
    group.total.aggregate_gb_per_s.samples.push_back(all->aggregate_gb_per_s);
    group.total.sum_gb_per_s.samples.push_back(all->sum_gb_per_s);
    group.total.overlap_percent.samples.push_back(all->overlap_percent);
  }
}

void Results::finish(StreamReport& report) {
  const auto judge = [](auto&... figures) { ((figures = figure_of(std::move(figures.samples))), ...); };
  for (std::size_t i = 0; i < latencies_us_.size(); ++i) {
    TransferReport& told = report.transfers[i];
    judge(told.life_gb_per_s, told.window_gb_per_s, told.seconds);
    told.latency = latency_of(std::move(latencies_us_[i]));
    const StreamFigure& judged = told.transfer.is_background ? told.window_gb_per_s : told.life_gb_per_s;
    if (told.link.gb_per_s > 0) told.ratio = judged.median / told.link.gb_per_s;
  }
  for (auto& [total, members] : groups_) {
    judge(total.aggregate_gb_per_s, total.sum_gb_per_s, total.overlap_percent);
    if (total.aggregate_gb_per_s.samples.empty()) continue;
    if (members.size() > 1 && total.sum_gb_per_s.median > total.aggregate_gb_per_s.median * kSerialised) {
      report.warnings.push_back(warn_serialised(total));
    }
    report.totals.push_back(std::move(total));
  }
}

}  // namespace gigabar::inline v0
