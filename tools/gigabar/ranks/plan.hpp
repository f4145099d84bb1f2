// SPDX-License-Identifier: Apache-2.0
// What latency, bw, bibw, multi-lat and mbw-mr are asked to do, as far as the command line alone tells: sizes, counts, whose
// memory. Letters and defaults are those of the OSU micro-benchmarks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranks/job.hpp"
#include "support/names.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool::ranks {

enum class Measure : std::uint8_t { latency, bandwidth, both_ways, many_latencies, many_bandwidths };
struct MeasureWords {
  std::string_view command;
  std::string_view title;  // OSU's
  const char* description;
};
inline constexpr std::array<MeasureWords, 5> kMeasureWords = {
    {{"latency", "Latency Test", "Latency between two ranks by size, and the path taken"},
     {"bw", "Bandwidth Test", "Bandwidth from one rank to another by size, and the path taken"},
     {"bibw", "Bi-Directional Bandwidth Test", "Bandwidth between two ranks in both directions at once"},
     {"multi-lat", "Multi Latency Test", "Latency of several pairs of ranks at once"},
     {"mbw-mr", "Multiple Bandwidth / Message Rate Test", "Bandwidth and message rate of several pairs of ranks at once"}}};
constexpr const MeasureWords& words_of(Measure measure) noexcept { return kMeasureWords[static_cast<std::size_t>(measure)]; }
constexpr std::string_view command_of(Measure measure) noexcept { return words_of(measure).command; }
constexpr bool is_latency(Measure measure) noexcept { return measure == Measure::latency || measure == Measure::many_latencies; }
constexpr bool is_of_pairs(Measure measure) noexcept {
  return measure == Measure::many_latencies || measure == Measure::many_bandwidths;
}

enum class Kind : std::uint8_t {
  send,
  write,  // with notification
  put,    // without: the target looks at its memory
  read
};
inline constexpr std::array<Named<Kind>, 4> kKinds = {
    {{Kind::send, "send"}, {Kind::write, "write"}, {Kind::put, "put"}, {Kind::read, "read"}}};
constexpr std::string_view name_of(Kind kind) noexcept { return name_in(kKinds, kind); }

enum class Place : std::uint8_t { host, device };
constexpr char letter_of(Place place) noexcept { return place == Place::device ? 'D' : 'H'; }

struct Counts {
  std::uint32_t iterations = 0;
  std::uint32_t warm_up = 0;
};

// Of commands that do rounds at each of several sizes.
struct RoundOptions : JobOptions {
  std::string sizes;  // -m, as typed
  std::optional<std::uint32_t> iteration_count;
  std::optional<std::uint32_t> warm_up_count;
  std::uint32_t window = 64;
  bool is_checked = false;  // -c
  std::optional<std::uint64_t> fault_bytes;

  // The usual ones, where -i and -x do not say otherwise.
  Counts counts(const Counts& usual) const noexcept {
    return {iteration_count.value_or(usual.iterations), warm_up_count.value_or(usual.warm_up)};
  }
};
// -i and -x, with the defaults that the help shows.
void add_counts(const Command& command, RoundOptions& options, const char* iterations, const char* warm_up);

struct Options : RoundOptions {
  Measure measure = Measure::latency;
  Kind kind = Kind::send;
  std::string accelerator = "host";  // -d
  std::vector<std::string> places;   // "D H"
  std::optional<std::uint32_t> pair_count;
  std::uint32_t thread_count = 1;  // of each rank, each with a queue of its own
  bool is_shared = false;          // --shared
  bool is_compared = false;        // --compare
};

inline constexpr std::uint64_t kLargeBytes = 8192;  // above, OSU takes fewer samples
inline constexpr std::uint32_t kMaxWindow = 512;    // half of a queue, so that both directions fit in

SizeRange default_sizes(Measure measure) noexcept;
// At that size, when -i and -x do not say otherwise.
Counts counts_for(const Options& options, std::uint64_t bytes) noexcept;

// Everything settled. Ends the command as bad usage where options contradict each other.
struct Plan {
  Options options;
  SizeRange range;
  std::vector<std::uint64_t> sizes;
  Place first_place = Place::host;   // of rank 0 and the other senders
  Place second_place = Place::host;  // of their partners
};
Plan make_plan(const Options& options);

// Who does what among `rank_count` ranks: rank i of the first half works with rank i + pairs.
struct Seat {
  Rank partner = 0;
  bool is_active = false;  // starts each round and takes the time
  bool is_idle = false;    // not of any pair
};
// How many pairs there are. Ends the command as bad usage when the ranks are not what the command needs.
std::uint32_t pair_count_for(const Options& options, Rank rank_count);
Seat seat_of(Rank rank, std::uint32_t pair_count) noexcept;

// The same at ranks whose options agree in all that must agree.
std::uint64_t digest_of(const Plan& plan);

}  // namespace gigabar::tool::ranks
