// SPDX-License-Identifier: Apache-2.0
#include "ranks/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr double kNsPerPs = 0.001;
constexpr std::size_t kMaxText = 4096;  // of a path or a complaint

double total_us(const Measurement& measurement) {
  constexpr double kUsPerPs = 1e-6;
  return std::accumulate(measurement.samples_ps.begin(), measurement.samples_ps.end(), 0.0) * kUsPerPs;
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
    const double each_us = total_us(each);
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

// Each text once, in order of appearance.
std::string texts_of(std::span<const Measurement> measurements) {
  std::vector<std::string> texts;
  std::string line;
  for (const Measurement& each : measurements) {
    const std::string& text = each.path.text;
    if (text.empty() || std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    texts.push_back(text);
    line += (line.empty() ? "" : " + ") + text;
  }
  return line;
}

void add_complaints(SizeResult& result, std::span<const Measurement> by_rank) {
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Measurement& each = by_rank[rank];
    if (each.wrong_count != 0 && result.first_wrong.empty()) {
      result.first_wrong = fmt::format("rank {}: {}", rank, each.first_wrong);
    }
    result.wrong_count += each.wrong_count;
  }
}

}  // namespace

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
      if (!sample.is_number_unsigned()) return {};
      measurement.samples_ps.push_back(sample.get<std::uint64_t>());
    }
    measurement.path = {.text = plain(json.at("path").get<std::string>(), kMaxText), .detail = json.at("detail")};
    if (!json.at("wrong_count").is_number_unsigned() || !measurement.path.detail.is_object()) return {};
    measurement.wrong_count = json.at("wrong_count").get<std::uint64_t>();
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
  add_complaints(result, by_rank);
  return result;
}

double ratio_of(Measure measure, const SizeResult& result, const SizeResult& other) noexcept {
  const double above = is_latency(measure) ? other.p50 : result.p50;
  const double below = is_latency(measure) ? result.p50 : other.p50;
  return below > 0 ? above / below : 0.0;
}

Json to_json(const Plan& plan, const SizeResult& result) {
  const Options& options = plan.options;
  Json json = {{"measure", command_of(options.measure)}, {"kind", name_of(options.kind)},    {"bytes", result.bytes},
               {"iterations", result.counts.iterations}, {"warm_up", result.counts.warm_up}, {"pairs", result.pair_count}};
  if (!is_latency(options.measure)) {
    json.update({{"window", options.window},
                 {"mb_per_s", result.figure},
                 {"p50_mb_per_s", result.p50},
                 {"p99_mb_per_s", result.p99},
                 {"messages_per_s", result.messages_per_s},
                 {"pair_mb_per_s", result.pair_mb_per_s}});
  }
  json.update(to_json(result.summary));
  json["path_text"] = result.path_text;
  json["path"] = result.path.detail;
  json["back_path"] = result.back_path.text.empty() ? Json() : result.back_path.detail;
  json["is_checked"] = options.is_checked;
  json["wrong_count"] = result.wrong_count;
  if (result.wrong_count != 0) json["first_wrong"] = result.first_wrong;
  return json;
}

}  // namespace gigabar::tool::ranks
