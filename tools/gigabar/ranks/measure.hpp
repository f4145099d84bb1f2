// SPDX-License-Identifier: Apache-2.0
// What latency, bw, bibw, multi-lat and mbw-mr are asked to do, the memory between which they do it, and what comes of it. Letters
// and defaults are those of the OSU micro-benchmarks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "ranks/job.hpp"
#include "support/clock.hpp"
#include "support/names.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::ranks {

// --- The plan, as far as the command line alone tells: sizes, counts, whose memory ----------------------------------------------

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
// What `option`, --accelerator, names: cuda or host. Ends the command as bad usage where it is neither.
Place place_of(std::string_view option, std::string_view accelerator);

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

// --- One rank's memory, in which data are checked without the path under test, by the copy engine -------------------------------

// Where the messages of one size lie. Unchecked, all of a window use the same place, as OSU's; checked, each has its own as far as
// there is room, with a guard behind it.
struct Slots {
  std::uint64_t bytes = 0;         // of one message
  std::uint64_t stride_bytes = 0;  // from one to the next
  std::uint32_t count = 1;

  std::uint64_t offset_of(std::uint32_t message) const noexcept { return (message % count) * stride_bytes; }
  std::uint64_t area_bytes() const noexcept { return count * stride_bytes; }
};
inline constexpr std::uint64_t kGuardBytes = 64;
inline constexpr std::uint64_t kSlotBytes = 4096;                           // stride is a multiple
inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{16} << 20;  // of a window, all slots together

Slots slots_for(std::uint64_t bytes, std::uint32_t window, bool is_checked) noexcept;

class Buffers {
 public:
  // Room for sending and receiving at each size of the plan. `device` is used for Place::device only. Ends the command when there
  // is not enough memory.
  Buffers(const Plan& plan, Place place, const DeviceInfo& device);

  void* address() const noexcept { return base_; }  // sending from here on
  std::uint64_t receive_offset_bytes() const noexcept { return area_bytes_; }
  std::uint64_t bytes() const noexcept { return 2 * area_bytes_; }
  void* at(std::uint64_t offset_bytes) const noexcept { return static_cast<std::byte*>(base_) + offset_bytes; }
  const std::string& note() const noexcept { return note_; }  // empty: the memory is as it should be

  // Data that only this rank sends, and only in this round, into all slots.
  void fill_to_send(const Slots& slots, Rank sender, std::uint32_t round);
  // Nothing of what `sender` will send in this round, up to the end of the guards.
  void poison_to_receive(const Slots& slots, Rank sender, std::uint32_t round);
  // What is wrong with the first `message_count` messages of a window: the first byte that is not the sender's of this round, or a
  // guard that was written over. Nothing: they are right.
  std::optional<std::string> check_received(const Slots& slots, Rank sender, std::uint32_t round, std::uint32_t message_count);
  // Changes one byte of what was received: the check must then find it. Not for 0 bytes.
  void plant_fault(const Slots& slots);

 private:
  // Of device memory by the copy engine.
  void transfer(CopyDirection direction, std::uint64_t offset_bytes, std::span<std::byte> data);

  std::uint64_t area_bytes_ = 0;  // for sending, and again for receiving
  std::optional<HostMemory> host_;
  std::optional<DeviceMemory> device_;
  std::optional<Mapping> mapping_;  // of device memory, when data are checked
  void* base_ = nullptr;
  std::string note_;
  std::vector<std::byte> staging_;
};

// Of a thread's buffers.
constexpr SegmentId segment_of(std::uint32_t thread) noexcept { return static_cast<SegmentId>(kSegment + thread); }

// A rank that measures what goes between its buffers and those of others.
class BufferSession : public RankSession {
 protected:
  using RankSession::RankSession;

  // Those of each thread, each a segment of its own unless only messages are sent. Of device memory where `place` says so: of
  // device_, or else of the device whose number is the local rank, modulo the devices.
  void make_buffers(const Plan& plan, Place place);
  // At rank 0: its device, where memory of it is measured, the clock and the settings.
  void tell_setup();

  const SampleClock clock_ = SampleClock::calibrate();
  std::optional<DeviceInfo> device_;
  std::vector<Buffers*> buffers_;  // by thread
};

// --- From what each rank measured to the figures of one size, and how they are shown --------------------------------------------

// --- Paths: which one operations took, as their reports say ---------------------------------------------------------------------

struct PathUse {
  std::string text;              // "verbs staged (rxe0/1)"; empty: no operation
  Json detail = Json::object();  // of the last one, and every other that differs
};

// "local p2p", "verbs gdr (mlx5_0/1, mlx5_1/1)"; the transport alone when nothing was to be moved. The rail of the local transport
// is never a choice and is left out.
std::string path_text(const OperationReport& report);
// Of a few operations of one size. Where they differ (rails taking turns, say) each text stands once, in order of appearance.
PathUse path_use_of(std::span<const OperationReport> reports);

// --- Measurements ---------------------------------------------------------------------------------------------------------------

// What one rank saw. Samples are of the active rank of a pair: half a round trip, a whole read, or a whole window; of several
// threads, those of one behind those of another.
struct Measurement : Complaint {
  std::vector<std::uint64_t> samples_ps;
  PathUse path;  // of the operations that this rank posted; without text when it posted none that moved the data
};

// Of the threads of one rank, which have as many samples each.
Measurement joined(std::vector<Measurement> of_threads);

// For the way from a rank to rank 0. What another process sent is not trusted: nothing when it is no measurement.
std::string encode(const Measurement& measurement);
std::optional<Measurement> decode(std::string_view bytes);

struct SizeResult : Complaint {
  std::uint64_t bytes = 0;
  std::uint32_t pair_count = 1;
  Summary summary;            // of single samples of all pairs: one way, a read, or a window
  double figure = 0;          // OSU's: the mean in microseconds, or MB/s of all pairs together
  double p50 = 0;             // of the samples, in the figure's unit; of a bandwidth, one pair's
  double p99 = 0;             // 99 of 100 samples are at least as good
  double messages_per_s = 0;  // of all pairs; bandwidths only
  std::vector<double> pair_mb_per_s;
  std::string path_text;
  PathUse path;       // of rank 0's operations
  PathUse back_path;  // of its partner's, when that one moved data too
};

// `by_rank[i]` is rank i's. At least two per pair.
SizeResult combine(const Plan& plan, std::uint64_t bytes, std::uint32_t pair_count, std::span<const Measurement> by_rank);

// How many times better `result` is than `other`, by the medians; 0 when there is nothing to compare.
double ratio_of(Measure measure, const SizeResult& result, const SizeResult& other) noexcept;

// --- What rank 0 prints ---------------------------------------------------------------------------------------------------------
//
// What does not begin with '#' is data, and its first columns are those of the OSU micro-benchmarks, to the letter, so that what
// reads theirs reads these.

// "# Gigabar 0.1.0 Latency Test", whose buffers are where, what is timed, pairs and window; each line with its end.
std::string title_lines(const Plan& plan, std::string_view version, std::uint32_t pair_count);
// One size. `other`: the same with gdr and p2p forbidden; null without --compare.
Row row_of(const Plan& plan, const SizeResult& result, const SizeResult* other);

}  // namespace gigabar::tool::ranks
