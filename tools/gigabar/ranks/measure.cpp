// SPDX-License-Identifier: Apache-2.0
#include "ranks/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <ranges>

#include "base/counted.hpp"
#include "base/fnv.hpp"
#include "base/rounding.hpp"
#include "support/pattern.hpp"
#include "support/plain_text.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool::ranks {

// --- The plan -------------------------------------------------------------------------------------------------------------------

namespace {

void settle_places(Plan& plan) {
  const std::vector<std::string>& typed = plan.options.places;
  const Place usual = place_of("-d", plan.options.accelerator);
  plan.first_place = plan.second_place = usual;
  if (typed.empty()) return;
  if (typed.size() != 2) {
    refuse_usage(fmt::format("{} given; give two, rank 0's and rank 1's, as in 'D H'",
                             counted(typed.size(), "kind of buffer is", "kinds of buffers are")));
  }
  const auto parse = [usual](const std::string& text) {
    if (text == "H" || text == "h") return Place::host;
    if (text != "D" && text != "d")
      refuse_usage(fmt::format("'{}' is no kind of buffer; write H (host) or D (device), rank 0's first", text));
    if (usual == Place::host) refuse_usage("'D' is memory of a device; add -d cuda");
    return Place::device;
  };
  plan.first_place = parse(typed[0]);
  plan.second_place = parse(typed[1]);
}

void settle_sizes(Plan& plan) {
  SizeRange usual = default_sizes(plan.options.measure);
  if (plan.options.kind == Kind::put) usual.least_bytes = 1;
  plan.range = settle_range("-m", plan.options.sizes, {.usual = usual});
  if (plan.range.least_bytes == 0 && !is_latency(plan.options.measure)) {
    refuse_usage(fmt::format("-m {}: 0 bytes have no bandwidth; start at 1", plan.options.sizes));
  }
  plan.sizes = sizes_of(plan.range);
}

// The last byte of a put is what its target waits for.
void settle_put(const Plan& plan) {
  if (plan.options.kind != Kind::put) return;
  if (!is_latency(plan.options.measure)) refuse_usage("--op put is for latency and multi-lat; take --op write");
  if (plan.first_place == Place::device || plan.second_place == Place::device)
    refuse_usage("--op put waits by looking at host memory; leave D out, or take --op write");
  if (plan.options.is_checked) refuse_usage("--op put changes the last byte itself, so -c cannot check it; leave one out");
  if (plan.range.least_bytes == 0) refuse_usage(fmt::format("-m {}: nobody sees a put of 0 bytes; start at 1", plan.options.sizes));
}

}  // namespace

void add_counts(const Command& command, RoundOptions& options, const char* iterations, const char* warm_up) {
  constexpr std::uint64_t kMaxRounds = 100000000;
  command.add_option("-i,--iterations", options.iteration_count, whole_number(1, kMaxRounds), "Timed rounds per size")
      ->default_str(iterations);
  command.add_option("-x,--warmup", options.warm_up_count, whole_number(0, kMaxRounds), "Untimed rounds before the timed ones")
      ->default_str(warm_up);
}

Place place_of(std::string_view option, std::string_view accelerator) {
  if (accelerator == "cuda") return Place::device;
  if (accelerator == "host") return Place::host;
  refuse_usage(fmt::format("{} {}: this is no kind of device; choose cuda or host", option, accelerator));
}

SizeRange default_sizes(Measure measure) noexcept { return {is_latency(measure) ? 0U : 1U, std::uint64_t{4} << 20}; }

Counts counts_for(const Options& options, std::uint64_t bytes) noexcept {
  const bool is_large = bytes > kLargeBytes;
  if (is_latency(options.measure)) return options.counts(is_large ? Counts{1000, 10} : Counts{10000, 100});
  return options.counts(is_large ? Counts{20, 2} : Counts{100, 10});
}

Plan make_plan(const Options& options) {
  Plan plan;
  plan.options = options;
  settle_places(plan);
  settle_sizes(plan);
  settle_put(plan);
  plan.options.fabric.options = fabric_options(options.fabric);
  const PathPolicy& policy = plan.options.fabric.options.policy;
  for (const auto& [preference, name] : {std::pair(policy.gdr, "gdr"), std::pair(policy.p2p, "p2p")}) {
    if (options.is_compared && preference == Preference::require)
      refuse_usage(
          fmt::format("--compare forbids {} for the second curve, and --require {} asks for it; leave one out", name, name));
  }
  return plan;
}

std::uint32_t pair_count_for(const Options& options, Rank rank_count) {
  const std::string_view command = command_of(options.measure);
  if (!is_of_pairs(options.measure)) {
    exactly_two(command)(rank_count);
    return 1;
  }
  const std::uint32_t pair_count = options.pair_count.value_or(rank_count / 2);
  if (!options.pair_count && (rank_count < 2 || rank_count % 2 != 0)) {
    refuse_usage(fmt::format("the job has {}, and {} works in pairs; start an even number, or say --pairs",
                             counted(rank_count, "rank"), command));
  }
  if (std::uint64_t{pair_count} * 2 > rank_count) {
    refuse_usage(fmt::format("--pairs {} needs {}, and the job has {}; start more, or ask for fewer pairs", pair_count,
                             counted(std::uint64_t{pair_count} * 2, "rank"), rank_count));
  }
  return pair_count;
}

Seat seat_of(Rank rank, std::uint32_t pair_count) noexcept {
  if (rank < pair_count) return {.partner = rank + pair_count, .is_active = true, .is_idle = false};
  if (rank < 2 * pair_count) return {.partner = rank - pair_count, .is_active = false, .is_idle = false};
  return {.partner = rank, .is_active = false, .is_idle = true};
}

std::uint64_t digest_of(const Plan& plan) {
  const Options& options = plan.options;
  return fnv1a(fmt::format("{} {} {}{} {} {} {} {} {} {} {} {} {} {}", command_of(options.measure), name_of(options.kind),
                           letter_of(plan.first_place), letter_of(plan.second_place), plan.range.least_bytes, plan.range.most_bytes,
                           options.iteration_count.value_or(0), options.warm_up_count.value_or(~0U), options.window,
                           options.pair_count.value_or(0), options.thread_count, options.is_shared, options.is_checked,
                           options.is_compared));
}

// --- Memory ---------------------------------------------------------------------------------------------------------------------

namespace {

Pattern pattern_of(Rank sender, std::uint32_t round, std::uint32_t slot) noexcept {
  constexpr std::uint64_t kSpread = 0xd6e8feb86659fd93U;  // odd: neighbouring numbers become distant seeds
  const std::uint64_t name = (std::uint64_t{sender} << 42) ^ (std::uint64_t{round} << 10) ^ slot;
  return Pattern((name + 1) * kSpread);
}

}  // namespace

Slots slots_for(std::uint64_t bytes, std::uint32_t window, bool is_checked) noexcept {
  if (!is_checked) return {.bytes = bytes, .stride_bytes = std::max<std::uint64_t>(bytes, 1), .count = 1};
  const std::uint64_t stride = round_up(bytes + kGuardBytes, kSlotBytes);
  const std::uint64_t count = std::clamp<std::uint64_t>(kMaxCheckedBytes / stride, 1, window);
  return {.bytes = bytes, .stride_bytes = stride, .count = static_cast<std::uint32_t>(count)};
}

Buffers::Buffers(const Plan& plan, Place place, const DeviceInfo& device) {
  const std::uint32_t window = is_latency(plan.options.measure) ? 1 : plan.options.window;
  for (const std::uint64_t size : plan.sizes) {
    area_bytes_ = std::max(area_bytes_, round_up(slots_for(size, window, plan.options.is_checked).area_bytes(), kSlotBytes));
  }
  if (place == Place::host) {
    host_.emplace(allocate_host(device, bytes(), note_, plan.options.is_shared));
    base_ = host_->address();
    return;
  }
  device_.emplace(take(DeviceMemory::allocate(device.index, bytes())));
  base_ = device_->address();
  if (plan.options.is_checked) mapping_.emplace(take(map(base_, bytes())));
}

void Buffers::transfer(CopyDirection direction, std::uint64_t offset_bytes, std::span<std::byte> data) {
  if (data.empty()) return;
  const bool is_write = direction == CopyDirection::to_device;
  if (host_) {
    std::memcpy(is_write ? at(offset_bytes) : data.data(), is_write ? data.data() : at(offset_bytes), data.size());
    return;
  }
  const MappedPlace place{*mapping_, offset_bytes};
  take(is_write ? copy(place, data.data(), data.size(), CopyMethod::copy_engine)
                : copy(data.data(), place, data.size(), CopyMethod::copy_engine));
}

void Buffers::fill_to_send(const Slots& slots, Rank sender, std::uint32_t round) {
  staging_.resize(slots.bytes);
  for (std::uint32_t slot = 0; slot < slots.count; ++slot) {
    pattern_of(sender, round, slot).fill(staging_);
    transfer(CopyDirection::to_device, slots.offset_of(slot), staging_);
  }
}

void Buffers::poison_to_receive(const Slots& slots, Rank sender, std::uint32_t round) {
  staging_.resize(slots.bytes + kGuardBytes);
  for (std::uint32_t slot = 0; slot < slots.count; ++slot) {
    pattern_of(sender, round, slot).poison(staging_);
    transfer(CopyDirection::to_device, area_bytes_ + slots.offset_of(slot), staging_);
  }
}

std::optional<std::string> Buffers::check_received(const Slots& slots, Rank sender, std::uint32_t round,
                                                   std::uint32_t message_count) {
  staging_.resize(slots.bytes + kGuardBytes);
  const std::span<const std::byte> found(staging_);
  for (std::uint32_t slot = 0; slot < std::min(slots.count, message_count); ++slot) {
    transfer(CopyDirection::from_device, area_bytes_ + slots.offset_of(slot), staging_);
    const Pattern pattern = pattern_of(sender, round, slot);
    const auto wrong = pattern.compare(found.first(slots.bytes));
    const auto beyond = pattern.compare_poison(found.subspan(slots.bytes), slots.bytes);
    if (!wrong && !beyond) continue;
    return fmt::format("{} from rank {}, round {}, message {}: {}{}", counted(slots.bytes, "byte"), sender, round, slot,
                       wrong ? "" : "written beyond their end: ", wrong ? wrong->to_string() : beyond->to_string());
  }
  return {};
}

void Buffers::plant_fault(const Slots& slots) {
  const std::uint64_t place = area_bytes_ + slots.bytes / 2;
  std::byte value{};
  transfer(CopyDirection::from_device, place, {&value, 1});
  value ^= std::byte{1};
  transfer(CopyDirection::to_device, place, {&value, 1});
}

void BufferSession::make_buffers(const Plan& plan, Place place) {
  if (place == Place::device && !device_) {
    const std::vector<DeviceInfo> found = take(devices());
    device_ = found[fabric().local_rank() % found.size()];
  }
  for (std::uint32_t thread = 0; thread < plan.options.thread_count; ++thread) {
    const auto own = std::make_shared<Buffers>(plan, place, device_.value_or(DeviceInfo()));
    memory_.push_back(own);
    buffers_.push_back(own.get());
    if (plan.options.kind != Kind::send) register_segment(segment_of(thread), own->address(), own->bytes());
  }
}

void BufferSession::tell_setup() {
  if (device_) report()->set_device(*device_);
  report()->set_clock(clock_);
  tell_settings();
}

// --- Results --------------------------------------------------------------------------------------------------------------------

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

void add_bandwidths(const Plan& plan, SizeResult& result, std::span<const Measurement> active) {
  const double directions = plan.options.measure == Measure::both_ways ? 2.0 : 1.0;
  const double bytes = static_cast<double>(result.bytes) * plan.options.window * directions;  // of one window
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

// What is timed of each kind: of latencies, of bandwidths.
constexpr std::array<std::array<const char*, 2>, kKinds.size()> kTimed = {
    {{"send: half of a round trip", "send"},
     {"write with notification: half of a round trip", "write: windows of writes, the last with a notification"},
     {"write without notification, seen in the target's memory: half of a round trip", "put"},
     {"read: from the post until the bytes are here, not halved", "read"}}};

// Each text once, in order of appearance.
void add_text(std::vector<std::string>& texts, std::string text) {
  if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

std::string texts_of(std::span<const Measurement> measurements) {
  std::vector<std::string> texts;
  for (const Measurement& each : measurements) add_text(texts, each.path.text);
  return fmt::format("{}", fmt::join(texts, " + "));
}

Json to_json(const OperationReport& report) {
  Json rails = list_of(report.rails, [](const RailShare& share) -> Json { return {{"rail", share.rail}, {"bytes", share.bytes}}; });
  return {{"text", path_text(report)},    {"transport", report.transport ? Json(name_of(*report.transport)) : Json()},
          {"path", name_of(report.path)}, {"rails", std::move(rails)},
          {"bytes", report.bytes},        {"chunks", report.chunks},
          {"retries", report.retries},    {"reason", report.reason}};
}

}  // namespace

std::string path_text(const OperationReport& report) {
  std::string text(report.transport ? name_of(*report.transport) : "");
  if (report.path != TransferPath::none) text += (text.empty() ? "" : " ") + std::string(name_of(report.path));
  if (report.rails.empty() || report.transport == TransportKind::local) return text.empty() ? "none" : text;
  return fmt::format("{} ({})", text, fmt::join(report.rails | std::views::transform(&RailShare::rail), ", "));
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
  lines += fmt::format("# {}\n", kTimed[static_cast<std::size_t>(options.kind)][is_latency(options.measure) ? 0 : 1]);
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
  const Counts counts = counts_for(options, result.bytes);
  constexpr const char* kFigure = "{:>16.2f}";  // OSU's widths
  constexpr const char* kOwn = "{:>12.2f}";     // of our columns behind its
  Row row;
  row.add("measure", command_of(options.measure)).add("kind", name_of(options.kind));
  row.add("bytes", result.bytes, "# Size", "{:<10}");
  row.add("iterations", counts.iterations).add("warm_up", counts.warm_up).add("pairs", result.pair_count);
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
