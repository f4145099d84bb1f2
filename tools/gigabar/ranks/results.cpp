// SPDX-License-Identifier: Apache-2.0
#include "ranks/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ranges>

#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr std::size_t kMaxText = 4096;  // of a path or a complaint

// Of the thread that took longest: until then the rank was not done.
double total_us(const Measurement& measurement, std::size_t thread_count) {
  constexpr double kUsPerPs = 1e-6;
  const std::span<const std::uint64_t> samples(measurement.samples_ps);
  const std::size_t per_thread = samples.size() / thread_count;
  double longest_ps = 0;
  for (std::size_t thread = 0; thread < thread_count; ++thread) {
    const auto own = samples.subspan(thread * per_thread, per_thread);
    longest_ps = std::max(longest_ps, std::accumulate(own.begin(), own.end(), 0.0));
  }
  return longest_ps * kUsPerPs;
}

// Bytes per microsecond are 10^6 bytes per second.
double mb_per_s(double bytes, double duration_us) noexcept { return duration_us > 0 ? bytes / duration_us : 0.0; }

// Bytes of one window, both directions where both are used.
double window_bytes(const Plan& plan, std::uint64_t bytes) noexcept {
  const double directions = plan.options.measure == Measure::both_ways ? 2.0 : 1.0;
  return static_cast<double>(bytes) * plan.options.window * directions;
}

void add_bandwidths(const Plan& plan, SizeResult& result, std::span<const Measurement> active) {
  const double bytes = window_bytes(plan, result.bytes);
  double sum_us = 0;
  double all_bytes = 0;
  for (const Measurement& each : active) {
    const double each_bytes = bytes * static_cast<double>(each.samples_ps.size());
    const double each_us = total_us(each, plan.options.thread_count);
    result.pair_mb_per_s.push_back(mb_per_s(each_bytes, each_us));
    sum_us += each_us;
    all_bytes += each_bytes;
  }
  // As OSU: everybody's bytes over the mean of the times.
  result.figure = mb_per_s(all_bytes, sum_us / static_cast<double>(active.size()));
  result.p50 = mb_per_s(bytes, result.summary.p50_us);
  result.p99 = mb_per_s(bytes, result.summary.p99_us);
  result.messages_per_s = result.figure * 1e6 / static_cast<double>(std::max<std::uint64_t>(result.bytes, 1));
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

// Each text once, in order of appearance.
void add_text(std::vector<std::string>& texts, std::string text) {
  if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

std::string texts_of(std::span<const Measurement> measurements) {
  std::vector<std::string> texts;
  for (const Measurement& each : measurements) add_text(texts, each.path.text);
  return fmt::format("{}", fmt::join(texts, " + "));
}

}  // namespace

std::string path_text(const OperationReport& report) {
  std::string text(report.transport ? name_of(*report.transport) : "");
  if (report.path != TransferPath::none) text += (text.empty() ? "" : " ") + std::string(name_of(report.path));
  if (report.rails.empty() || report.transport == TransportKind::local) return text.empty() ? "none" : text;
  return fmt::format("{} ({})", text, fmt::join(report.rails | std::views::transform(&RailShare::rail), ", "));
}

Json to_json(const OperationReport& report) {
  Json rails = list_of(report.rails, [](const RailShare& share) -> Json { return {{"rail", share.rail}, {"bytes", share.bytes}}; });
  return {{"text", path_text(report)},    {"transport", report.transport ? Json(name_of(*report.transport)) : Json()},
          {"path", name_of(report.path)}, {"rails", std::move(rails)},
          {"bytes", report.bytes},        {"chunks", report.chunks},
          {"retries", report.retries},    {"reason", report.reason}};
}

PathUse path_use_of(std::span<const OperationReport> reports) {
  PathUse use;
  if (reports.empty()) return use;
  std::vector<std::string> texts;
  for (const OperationReport& report : reports) add_text(texts, path_text(report));
  use.text = fmt::format("{}", fmt::join(texts, " + "));
  use.detail = to_json(reports.back());
  if (texts.size() > 1) use.detail["all"] = texts;
  return use;
}

Measurement joined(std::vector<Measurement> of_threads) {
  std::string texts = texts_of(of_threads);
  Measurement all = std::move(of_threads.front());
  all.path.text = std::move(texts);
  for (const Measurement& each : std::span(of_threads).subspan(1)) {
    all.samples_ps.insert(all.samples_ps.end(), each.samples_ps.begin(), each.samples_ps.end());
    all.add(each);
  }
  return all;
}

std::string encode(const Measurement& measurement) {
  const Json json = {{"samples_ps", measurement.samples_ps},
                     {"path", measurement.path.text},
                     {"detail", measurement.path.detail},
                     {"wrong_count", measurement.wrong_count},
                     {"first_wrong", measurement.first_wrong}};
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

std::optional<Measurement> decode(std::string_view bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    if (!json.is_object()) return {};
    Measurement measurement;
    for (const Json& sample : json.at("samples_ps")) {
      measurement.samples_ps.push_back(sample.get_ref<const Json::number_unsigned_t&>());
    }
    measurement.path = {.text = plain(json.at("path").get<std::string>(), kMaxText), .detail = json.at("detail")};
    if (!measurement.path.detail.is_object()) return {};
    measurement.wrong_count = json.at("wrong_count").get_ref<const Json::number_unsigned_t&>();
    measurement.first_wrong = plain(json.at("first_wrong").get<std::string>(), kMaxText);
    return measurement;
  } catch (const Json::exception&) {
    return {};
  }
}

SizeResult combine(const Plan& plan, std::uint64_t bytes, std::uint32_t pair_count, std::span<const Measurement> by_rank) {
  SizeResult result;
  result.bytes = bytes;
  result.counts = counts_for(plan.options, bytes);
  result.pair_count = pair_count;
  const auto active = by_rank.first(pair_count);
  const auto passive = by_rank.subspan(pair_count, pair_count);
  std::vector<std::uint64_t> samples;
  for (const Measurement& each : active) samples.insert(samples.end(), each.samples_ps.begin(), each.samples_ps.end());
  result.summary = summarize(samples, kNsPerPs);
  if (is_latency(plan.options.measure)) {
    result.figure = result.summary.mean_us;
    result.p50 = result.summary.p50_us;
    result.p99 = result.summary.p99_us;
  } else {
    add_bandwidths(plan, result, active);
  }
  result.path = active.front().path;
  result.back_path = passive.front().path;
  result.path_text = texts_of(active);
  const std::string back = texts_of(passive);
  if (!back.empty() && back != result.path_text) result.path_text += ", back " + back;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) result.add(by_rank[rank], fmt::format("rank {}: ", rank));
  return result;
}

double ratio_of(Measure measure, const SizeResult& result, const SizeResult& other) noexcept {
  const double above = is_latency(measure) ? other.p50 : result.p50;
  const double below = is_latency(measure) ? result.p50 : other.p50;
  return below > 0 ? above / below : 0.0;
}

std::string title_lines(const Plan& plan, std::string_view version, std::uint32_t pair_count) {
  const Options& options = plan.options;
  const auto buffer = [](Place place) { return place == Place::device ? "DEVICE (D)" : "HOST (H)"; };
  std::string lines = fmt::format("# Gigabar {} {}\n", version, words_of(options.measure).title);
  lines += fmt::format("# Send Buffer on {} and Receive Buffer on {}\n", buffer(plan.first_place), buffer(plan.second_place));
  lines += fmt::format("# {}\n", what_is_timed(plan));
  if (is_of_pairs(options.measure)) {
    const std::string window = is_latency(options.measure) ? "" : fmt::format(" [ window size: {} ]", options.window);
    const std::string threads = options.thread_count == 1 ? "" : fmt::format(" [ threads: {} ]", options.thread_count);
    lines += fmt::format("# [ pairs: {} ]{}{}\n", pair_count, window, threads);
  }
  return lines;
}

Row row_of(const Plan& plan, const SizeResult& result, const SizeResult* other) {
  const Options& options = plan.options;
  const bool is_time = is_latency(options.measure);
  const bool is_rate = options.measure == Measure::many_bandwidths;
  const std::string unit = is_time ? " (us)" : " (MB/s)";
  constexpr const char* kFigure = "{:>16.2f}";  // OSU's widths
  constexpr const char* kOwn = "{:>12.2f}";     // of our columns behind its
  Row row;
  row.add("measure", command_of(options.measure)).add("kind", name_of(options.kind));
  row.add("bytes", result.bytes, "# Size", "{:<10}");
  row.add("iterations", result.counts.iterations).add("warm_up", result.counts.warm_up).add("pairs", result.pair_count);
  row.show(is_time ? "Latency (us)" : is_rate ? "MB/s" : "Bandwidth (MB/s)", result.figure, kFigure);
  if (is_rate) row.show("Messages/s", result.messages_per_s, kFigure);
  if (options.is_checked) row.show("Validation", verdict_of(result.wrong_count), "{:>16}");
  row.show("p50" + unit, result.p50, kOwn).show("p99" + unit, result.p99, kOwn);
  if (!is_time) {
    row.add("window", options.window)
        .add("threads", options.thread_count)
        .add("mb_per_s", result.figure)
        .add("p50_mb_per_s", result.p50);
    row.add("p99_mb_per_s", result.p99).add("messages_per_s", result.messages_per_s).add("pair_mb_per_s", result.pair_mb_per_s);
  }
  row.merge(tool::to_json(result.summary));
  if (other != nullptr) {
    const double ratio = ratio_of(options.measure, result, *other);
    row.show("p50 without", other->p50, kOwn).add("ratio", ratio, "Ratio", kOwn);
    row.add("without_gdr_p2p", row_of(plan, *other, nullptr).document());
  }
  row.add("path_text", result.path_text, "Path", other != nullptr ? "{:<26}" : "{:<}");
  if (other != nullptr) row.show("Path without gdr, p2p", other->path_text, "{:<}");
  row.add("path", result.path.detail).add("back_path", result.back_path.text.empty() ? Json() : result.back_path.detail);
  row.add("is_checked", options.is_checked).add("wrong_count", result.wrong_count);
  if (result.wrong_count != 0) row.add("first_wrong", result.first_wrong);
  return row;
}

}  // namespace gigabar::tool::ranks
