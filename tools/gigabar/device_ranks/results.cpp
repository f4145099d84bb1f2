// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/results.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gigabar::tool::device_ranks {
namespace {

constexpr double kNsPerPs = 0.001;

bool is_active_unit(const UnitEnd& end) noexcept { return end.rounds_done != 0; }

double ns_per_tick(const UnitEnd& end) noexcept {
  return end.elapsed_ticks > 0 ? static_cast<double>(end.elapsed_ns) / static_cast<double>(end.elapsed_ticks) : 0.0;
}

const char* unit_of(Measure measure) noexcept {
  switch (measure) {
    case Measure::latency: return "us";
    case Measure::bandwidth: return "GB/s";
    case Measure::rate: return "M/s";
  }
  return "";
}

std::string figure_text(double value) {
  if (value < 1) return fmt::format("{:.3g}", value);
  return value < 10 ? fmt::format("{:.3f}", value) : fmt::format("{:.2f}", value);
}

// What one round of all units moves: bytes, or messages.
double round_amount(const RoundPlan& plan, std::uint32_t unit_count) noexcept {
  const double window = plan.window;
  return plan.measure == Measure::bandwidth ? static_cast<double>(plan.message_bytes) * window : unit_count * window;
}

// Of each unit's rounds.
std::vector<std::uint64_t> single_rounds_ps(const RoundPlan& plan, const KernelRun& run) {
  std::vector<std::uint64_t> samples;
  const double share = is_halved(plan) ? 0.5 : 1.0;
  for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
    if (!is_active_unit(run.ends[unit])) continue;
    const double ps_per_tick = ns_per_tick(run.ends[unit]) * share / kNsPerPs;
    for (std::uint32_t i = 0; i < plan.iteration_count; ++i) {
      const auto ticks = static_cast<double>(run.samples[unit * plan.iteration_count + i]);
      samples.push_back(static_cast<std::uint64_t>(ticks * ps_per_tick));
    }
  }
  return samples;
}

// A round of all units ends with that of the last one: from one such end to the next, and the first from when the first unit began.
// Together they are the whole time, however unlike the units were.
std::vector<std::uint64_t> common_rounds_ps(const RoundPlan& plan, const KernelRun& run) {
  constexpr std::uint64_t kPsPerNs = 1000;
  std::uint64_t before_ns = ~std::uint64_t{0};
  std::vector<std::uint64_t> round_ends_ns(plan.iteration_count);
  for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
    if (!is_active_unit(run.ends[unit])) continue;
    before_ns = std::min(before_ns, run.ends[unit].timed_from_ns);
    for (std::uint32_t i = 0; i < plan.iteration_count; ++i)
      round_ends_ns[i] = std::max(round_ends_ns[i], run.samples[unit * plan.iteration_count + i]);
  }
  std::vector<std::uint64_t> samples;
  for (const std::uint64_t end_ns : round_ends_ns) {
    samples.push_back(end_ns > before_ns ? (end_ns - before_ns) * kPsPerNs : 0);
    before_ns = std::max(before_ns, end_ns);
  }
  return samples;
}

}  // namespace

bool is_halved(const RoundPlan& plan) noexcept {
  if (plan.measure != Measure::latency) return false;
  return plan.op == Op::notify || plan.op == Op::notify_ordered || plan.op == Op::payload || plan.op == Op::write_notify;
}

SizeResult summarize_rounds(const RoundPlan& plan, std::uint64_t bytes, const KernelRun& run) {
  SizeResult result;
  result.bytes = bytes;
  result.unit_count = static_cast<std::uint32_t>(std::count_if(run.ends.begin(), run.ends.end(), is_active_unit));
  const auto first = std::find_if(run.ends.begin(), run.ends.end(), is_active_unit);
  if (first != run.ends.end()) result.ns_per_tick = ns_per_tick(*first);
  std::vector<std::uint64_t> samples_ps = plan.takes_end_times() ? common_rounds_ps(plan, run) : single_rounds_ps(plan, run);
  result.summary = summarize(samples_ps, kNsPerPs);
  if (plan.measure == Measure::latency) {
    result.figure = result.summary.mean_us;
    result.p50 = result.summary.p50_us;
    result.p99 = result.summary.p99_us;
    return result;
  }
  // Bytes per nanosecond are GB/s, messages per microsecond are millions per second.
  const double per_us = plan.measure == Measure::bandwidth ? 1e-3 : 1.0;
  const auto rate = [&](double us) { return us > 0 ? round_amount(plan, result.unit_count) * per_us / us : 0.0; };
  result.figure = rate(result.summary.mean_us);
  result.p50 = rate(result.summary.p50_us);
  result.p99 = rate(result.summary.p99_us);
  return result;
}

std::string what_is_timed(const Options& options) {
  const std::string_view op = name_of(options.op);
  if (options.measure == Measure::latency) {
    RoundPlan plan;
    plan.op = options.op;
    return fmt::format("{}: {}", op, is_halved(plan) ? "half of a round trip, in the kernel" : "a whole operation, in the kernel");
  }
  if (options.op == Op::read) return "read: windows of reads";
  const bool ends_with_flush = options.measure == Measure::rate && options.op == Op::write;
  return fmt::format("{}: windows of {}, each ended by {}", op, options.window,
                     ends_with_flush ? "a flush" : "a notification and its answer");
}

TextTable make_table(const Options& options) {
  const std::string unit = unit_of(options.measure);
  std::vector<TextTable::Column> columns = {{"# Size", true}};
  if (options.measure == Measure::latency) {
    columns.insert(columns.end(), {{"mean (us)"}, {"min (us)"}});
  } else {
    columns.push_back({options.measure == Measure::rate ? "million messages/s" : "GB/s"});
  }
  columns.insert(columns.end(), {{"p50 (" + unit + ")"}, {"p99 (" + unit + ")"}});
  if (options.is_checked) columns.push_back({"Validation"});
  columns.push_back({"Path", true});
  return TextTable(std::move(columns));
}

std::vector<std::string> row_of(const Options& options, const SizeResult& result, const std::string& path) {
  std::vector<std::string> row = {std::to_string(result.bytes), figure_text(result.figure)};
  if (options.measure == Measure::latency) row.push_back(figure_text(result.summary.min_us));
  row.push_back(figure_text(result.p50));
  row.push_back(figure_text(result.p99));
  if (options.is_checked) row.emplace_back(result.complaint.wrong_count == 0 ? "Pass" : "Fail");
  row.push_back(path);
  return row;
}

Json to_json(const Options& options, const Grid& grid, const SizeResult& result, const std::string& path) {
  const ranks::Counts counts = counts_for(options, result.bytes);
  Json json = {{"measure", command_of(options.measure)}, {"op", name_of(options.op)},  {"bytes", result.bytes},
               {"iterations", counts.iterations},        {"warm_up", counts.warm_up},  {"scope", name_of(grid.scope)},
               {"threads", grid.threads_per_block},      {"blocks", grid.block_count}, {"units", result.unit_count},
               {"ns_per_tick", result.ns_per_tick}};
  if (options.measure != Measure::latency) {
    const std::string unit = options.measure == Measure::bandwidth ? "gb_per_s" : "million_per_s";
    json.update({{"window", options.window}, {unit, result.figure}, {"p50_" + unit, result.p50}, {"p99_" + unit, result.p99}});
  }
  json.update(tool::to_json(result.summary));
  json["path"] = path;
  json["is_checked"] = options.is_checked;
  json["wrong_count"] = result.complaint.wrong_count;
  if (result.complaint.wrong_count != 0) json["first_wrong"] = result.complaint.first_wrong;
  return json;
}

}  // namespace gigabar::tool::device_ranks
