// SPDX-License-Identifier: Apache-2.0
#include "ranks/plan.hpp"

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/fnv.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/options.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr std::uint64_t kDefaultMostBytes = std::uint64_t{4} << 20;

Place parse_place(const std::string& text, bool has_devices) {
  if (text == "H" || text == "h") return Place::host;
  if (text != "D" && text != "d") {
    refuse_usage(fmt::format("'{}' is no kind of buffer; write H (host) or D (device), rank 0's first", text));
  }
  if (!has_devices) refuse_usage("'D' is memory of a device; add -d cuda");
  return Place::device;
}

void settle_places(Plan& plan) {
  const Options& options = plan.options;
  const bool has_devices = options.accelerator == "cuda";
  if (!has_devices && options.accelerator != "host") {
    refuse_usage(fmt::format("-d {}: this is no kind of device; choose cuda or host", options.accelerator));
  }
  if (options.places.empty()) {
    plan.first_place = plan.second_place = has_devices ? Place::device : Place::host;
    return;
  }
  if (options.places.size() != 2) {
    refuse_usage(fmt::format("{} given; give two, rank 0's and rank 1's, as in 'D H'",
                             counted(options.places.size(), "kind of buffer is", "kinds of buffers are")));
  }
  plan.first_place = parse_place(options.places[0], has_devices);
  plan.second_place = parse_place(options.places[1], has_devices);
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

void settle_comparison(const Plan& plan) {
  if (!plan.options.is_compared) return;
  const PathPolicy& policy = plan.options.fabric.options.policy;
  for (const auto& [preference, name] : {std::pair(policy.gdr, "gdr"), std::pair(policy.p2p, "p2p")}) {
    if (preference != Preference::require) continue;
    refuse_usage(fmt::format("--compare forbids {} for the second curve, and --require {} asks for it; leave one out", name, name));
  }
}

}  // namespace

void add_counts(const Command& command, RoundOptions& options, const char* iterations, const char* warm_up) {
  constexpr std::uint64_t kMaxRounds = 100000000;
  command.add_option("-i,--iterations", options.iteration_count, whole_number(1, kMaxRounds), "Timed rounds per size")
      ->default_str(iterations);
  command.add_option("-x,--warmup", options.warm_up_count, whole_number(0, kMaxRounds), "Untimed rounds before the timed ones")
      ->default_str(warm_up);
}

SizeRange default_sizes(Measure measure) noexcept {
  return {is_latency(measure) ? std::uint64_t{0} : std::uint64_t{1}, kDefaultMostBytes};
}

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
  settle_comparison(plan);
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

}  // namespace gigabar::tool::ranks
