// SPDX-License-Identifier: Apache-2.0
#include "ranks/table.hpp"

#include <fmt/format.h>

namespace gigabar::tool::ranks {
namespace {

// OSU's widths.
constexpr int kSizeWidth = 10;
constexpr int kFigureWidth = 18;
// Ours, behind its columns.
constexpr int kOwnWidth = 14;
constexpr int kPathWidth = 26;  // only where another column follows

std::string_view test_name(Measure measure) noexcept {
  switch (measure) {
    case Measure::latency: return "Latency Test";
    case Measure::bandwidth: return "Bandwidth Test";
    case Measure::both_ways: return "Bi-Directional Bandwidth Test";
    case Measure::many_latencies: return "Multi Latency Test";
    case Measure::many_bandwidths: return "Multiple Bandwidth / Message Rate Test";
  }
  return "Test";
}

std::string what_is_timed(const Plan& plan) {
  if (!is_latency(plan.options.measure)) {
    return plan.options.kind == Kind::write ? "write: windows of writes, the last with a notification"
                                            : std::string(name_of(plan.options.kind));
  }
  switch (plan.options.kind) {
    case Kind::send: return "send: half of a round trip";
    case Kind::write: return "write with notification: half of a round trip";
    case Kind::put: return "write without notification, seen in the target's memory: half of a round trip";
    case Kind::read: return "read: from the post until the bytes are here, not halved";
  }
  return {};
}

std::string padded(std::string_view text, int width) { return fmt::format("{:>{}}", text, width); }
std::string figure(double value, int width) { return fmt::format("{:>{}.2f}", value, width); }

std::string trimmed_line(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string title_lines(const Plan& plan, std::string_view version, std::uint32_t pair_count) {
  const Options& options = plan.options;
  std::string lines = fmt::format("# Gigabar {} {}\n", version, test_name(options.measure));
  lines += fmt::format("# Send Buffer on {} ({}) and Receive Buffer on {} ({})\n", name_of(plan.first_place),
                       letter_of(plan.first_place), name_of(plan.second_place), letter_of(plan.second_place));
  lines += fmt::format("# {}\n", what_is_timed(plan));
  if (is_of_pairs(options.measure)) {
    const std::string window = is_latency(options.measure) ? "" : fmt::format(" [ window size: {} ]", options.window);
    lines += fmt::format("# [ pairs: {} ]{}\n", pair_count, window);
  }
  return lines;
}

std::string column_line(const Plan& plan) {
  const Options& options = plan.options;
  const bool is_rate = options.measure == Measure::many_bandwidths;
  const std::string_view unit = is_latency(options.measure) ? "us" : "MB/s";
  const std::string_view main = is_latency(options.measure) ? "Latency (us)" : is_rate ? "MB/s" : "Bandwidth (MB/s)";
  std::string line = fmt::format("{:<{}}", "# Size", kSizeWidth) + padded(main, kFigureWidth);
  if (is_rate) line += padded("Messages/s", kFigureWidth);
  if (options.is_checked) line += padded("Validation", kFigureWidth);
  line += padded(fmt::format("p50 ({})", unit), kOwnWidth) + padded(fmt::format("p99 ({})", unit), kOwnWidth);
  if (options.is_compared) line += padded("p50 without", kOwnWidth) + padded("Ratio", kOwnWidth);
  line += options.is_compared ? fmt::format("  {:<{}}  Path without gdr, p2p", "Path", kPathWidth) : "  Path";
  return line + "\n";
}

std::string row(const Plan& plan, const SizeResult& result, const SizeResult* other) {
  const Options& options = plan.options;
  std::string line = fmt::format("{:<{}}", result.bytes, kSizeWidth) + figure(result.figure, kFigureWidth);
  if (options.measure == Measure::many_bandwidths) line += figure(result.messages_per_s, kFigureWidth);
  if (options.is_checked) line += padded(result.wrong_count == 0 ? "Pass" : "Fail", kFigureWidth);
  line += figure(result.p50, kOwnWidth) + figure(result.p99, kOwnWidth);
  if (other == nullptr) return trimmed_line(line + "  " + result.path_text);
  line += figure(other->p50, kOwnWidth) + figure(ratio_of(options.measure, result, *other), kOwnWidth);
  return trimmed_line(line + fmt::format("  {:<{}}  {}", result.path_text, kPathWidth, other->path_text));
}

}  // namespace gigabar::tool::ranks
