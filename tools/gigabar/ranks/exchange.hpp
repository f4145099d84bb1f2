// SPDX-License-Identifier: Apache-2.0
// What one rank does with its partner at one size: round trips or windows of messages, writes or reads; timed at the active rank,
// checked at both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"
#include "ranks/buffers.hpp"
#include "ranks/path_use.hpp"
#include "ranks/plan.hpp"
#include "support/clock.hpp"

namespace gigabar::tool::ranks {

inline constexpr SegmentId kSegment = 0;

// What one rank saw. Samples are of the active rank of a pair: half a round trip, a whole read, or a whole window.
struct Measurement {
  std::vector<std::uint64_t> samples_ps;
  PathUse path;  // of the operations that this rank posted; without text when it posted none that moved the data
  std::uint64_t wrong_count = 0;
  std::string first_wrong;
};

// For calls in which a rank waits while its partner, or another pair, does all rounds of one size: each of them has its own
// deadline.
Timeout patient_timeout(const Plan& plan, std::uint64_t bytes) noexcept;

class Exchange {
 public:
  // `buffers` are registered as kSegment at this rank and its partner when the kind is write or read.
  Exchange(Fabric& fabric, Buffers& buffers, const Plan& plan, const SampleClock& clock, Seat seat);

  // Warm-up and samples of one size; with the partner at the same time. `policy`: instead of the fabric's.
  Measurement measure(std::uint64_t bytes, const std::optional<PathPolicy>& policy);

 private:
  void begin_together();
  void do_round(std::uint32_t round);
  void do_round_trip(std::uint32_t round);
  void do_window(std::uint32_t round);
  void prepare(std::uint32_t round);
  void check(std::uint32_t round);
  bool is_receiving() const noexcept;
  void await_partner();

  // Messages.
  void send_message(std::uint32_t message);
  void receive_message(std::uint32_t message);
  void send_window();
  void post_receives();
  void await_messages(std::vector<Operation>& operations);
  void acknowledge();
  void await_acknowledgement();

  // Segments.
  RemotePlace remote_place(std::uint64_t offset_bytes) const noexcept;
  void clear_stamp();
  void stamp(std::uint32_t round);
  void await_stamp(std::uint32_t round);
  void write_message(std::uint32_t message, std::uint32_t round, bool with_notification);
  void write_window(std::uint32_t round);
  void read_message(std::uint32_t message);
  void read_window();
  void notify_partner(std::uint32_t round);
  void await_notification(std::uint32_t round);

  void remember(Operation operation);
  std::vector<OperationReport> reports() const;

  Fabric& fabric_;
  Buffers& buffers_;
  const Plan& plan_;
  const SampleClock& clock_;
  Seat seat_;
  Timeout timeout_;
  Rank rank_;
  bool is_latency_;
  Group pair_;
  // Of the size under way.
  Slots slots_;
  PostOptions post_;
  Measurement result_;
  std::vector<Operation> sends_;
  std::vector<Operation> receives_;
  std::vector<Operation> recent_;  // the last few that moved data; a ring
  std::size_t recent_count_ = 0;
};

}  // namespace gigabar::tool::ranks
