// SPDX-License-Identifier: Apache-2.0
// What one thread of a rank does with the same one of its partner at one size: round trips or windows of messages, writes or
// reads; timed at the active rank, checked at both. Each thread has a queue, a segment, notifications and tags of its own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "gigabar/fabric.hpp"
#include "ranks/job.hpp"
#include "ranks/measure.hpp"
#include "support/clock.hpp"

namespace gigabar::tool::ranks {

// For calls in which a rank waits while its partner, or another pair, does all rounds of one size: each of them has its own
// deadline.
inline Timeout patient_timeout(const Plan& plan, std::uint64_t bytes) noexcept {
  const Counts counts = counts_for(plan.options, bytes);
  return times(plan.options.fabric.timeout(), std::int64_t{counts.warm_up} + counts.iterations + 1);
}

// For one call of measure().
class Exchange {
 public:
  // `buffers` are registered as segment_of(thread) at this rank and its partner when the kind is write or read. `policy`: instead
  // of the fabric's.
  Exchange(Fabric& fabric, Buffers& buffers, const Plan& plan, const SampleClock& clock, Seat seat, std::uint32_t thread,
           std::uint64_t bytes, const std::optional<PathPolicy>& policy = {})
      : fabric_(fabric),
        buffers_(buffers),
        plan_(plan),
        clock_(clock),
        seat_(seat),
        thread_(thread),
        post_{on_queue_.queue, policy},
        slots_(slots_for(bytes, window_, plan.options.is_checked)) {}

  // Warm-up and samples; with the partner, and the rank's other threads, at the same time. `gate`: of the threads.
  Measurement measure(std::barrier<>& gate) {
    if (seat_.is_idle) {
      begin_together(gate);
      return {};
    }
    const Counts counts = counts_for(plan_.options, slots_.bytes);
    if (plan_.options.kind == Kind::put) {
      last_byte(buffers_.receive_offset_bytes()) = 0;  // of another size: it is not taken for the first round's
      await_partner();
    }
    result_.samples_ps.reserve(seat_.is_active ? counts.iterations : 0);
    sends_.reserve(window_);
    receives_.reserve(window_);
    // A round trip is two ways.
    const double ps_per_tick = clock_.ns_per_tick() * 1000.0 * (is_round_trip_ ? 0.5 : 1.0);
    for (std::uint32_t round = 0; round < counts.warm_up + counts.iterations; ++round) {
      if (round == counts.warm_up) begin_together(gate);
      if (plan_.options.is_checked) prepare(round);
      const std::uint64_t start = clock_.now();
      is_round_trip_ ? do_round_trip(round) : do_window(round);
      const std::uint64_t ticks = clock_.now() - start;
      if (seat_.is_active && round >= counts.warm_up) {
        result_.samples_ps.push_back(static_cast<std::uint64_t>(static_cast<double>(ticks) * ps_per_tick));
      }
      if (plan_.options.is_checked) check(round);
      // Outside the samples: one in so many would pay for all of them.
      if ((round + 1) % kWaitEvery == 0) of_partner(fabric_.wait(on_queue_.queue, timeout_));
    }
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
    std::vector<OperationReport> reports;
    for (std::size_t i = recent_count_ - std::min(recent_count_, kRemembered); i < recent_count_; ++i)
      reports.push_back(take(fabric_.report(recent_[i % kRemembered])));
    result_.path = path_use_of(reports);
    return std::move(result_);
  }

 private:
  static constexpr Tag kDataTag = 1;
  static constexpr Tag kAcknowledgement = 1, kMeeting = 4;  // their tags, from data_tag_
  static constexpr Tag kTagsOfThread = 16;
  static constexpr Tag kWholeTag = ~Tag{0};
  static constexpr std::size_t kRemembered = 8;  // operations whose paths are looked up after a size
  static constexpr unsigned kLooksPerPoll = 1024;
  static constexpr std::uint32_t kWaitEvery =
      64;  // round trips whose local completions may be left for later; far below kQueueDepth

  void do_round_trip(std::uint32_t round) {
    const Kind kind = plan_.options.kind;
    const auto give = [&] {
      if (kind == Kind::send) return send_message();
      if (kind == Kind::put) last_byte(0) = stamp_of(round);
      write_message(0, round, kind == Kind::write);
    };
    const auto get = [&] {
      if (kind == Kind::send) return receive_message();
      kind == Kind::put ? await_stamp(round) : await_notification(round);
    };
    if (seat_.is_active) give();
    get();
    if (!seat_.is_active) give();
  }

  void do_window(std::uint32_t round) {
    switch (plan_.options.kind) {
      case Kind::send:
        if (gets_) post_receives();
        if (gives_) send_window();
        if (gets_) await_messages(receives_);
        if (is_two_way_) return;  // each has seen the other's window
        if (gives_) hear_partner(kAcknowledgement);
        if (gets_) tell_partner(kAcknowledgement);
        return;
      case Kind::write:
        if (gives_) write_window(round);
        await_notification(round);  // of the other's window, or that ours has arrived
        if (!gives_) take(fabric_.notify(seat_.partner, segment_, notification_of(round), round + 1, post_));
        return;
      case Kind::read:
        if (gives_) read_window();
        return;
      case Kind::put: return;  // has no windows
    }
  }

  // --- Checks -------------------------------------------------------------------------------------------------------------------

  void prepare(std::uint32_t round) {
    buffers_.fill_to_send(slots_, fabric_.rank(), round);
    if (is_receiving_) buffers_.poison_to_receive(slots_, seat_.partner, round);
    await_partner();
  }

  void check(std::uint32_t round) {
    // What this rank still posts or answers is done, and the partner has what it was sent, before either changes its data.
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
    await_partner();
    if (!is_receiving_) return;
    if (plan_.options.fault_bytes == slots_.bytes && slots_.bytes != 0 && round == 0) buffers_.plant_fault(slots_);
    if (const auto wrong = buffers_.check_received(slots_, seat_.partner, round, window_)) result_.add({1, *wrong});
  }

  // Pairs load the machine for one another: none takes samples while another one still warms up.
  void begin_together(std::barrier<>& gate) {
    if (!is_of_pairs(plan_.options.measure)) return;
    gate.arrive_and_wait();
    if (thread_ == 0) require(fabric_.barrier({}, patient_timeout(plan_, slots_.bytes)));
    gate.arrive_and_wait();
  }

  // No barrier of the fabric, which is for one thread of a rank.
  void await_partner() {
    tell_partner(kMeeting);
    hear_partner(kMeeting);
  }

  // As take() and require(), for a wait for the partner. It is in every round that is timed.
  template <class T>
  T of_partner(Result<T> result) const {
    if (!result) fail_waiting_for(seat_.partner, timeout_, result.error());
    if constexpr (!std::is_void_v<T>) return std::move(result).value();
  }

  // --- Messages -----------------------------------------------------------------------------------------------------------------

  void send_message() {
    const Operation operation = take(fabric_.post_send(seat_.partner, data_tag_, buffers_.address(), slots_.bytes, post_));
    remember(operation);
    of_partner(fabric_.wait_message(operation, timeout_));
  }

  void receive_message() {
    void* const destination = buffers_.at(buffers_.receive_offset_bytes());
    of_partner(fabric_.recv(seat_.partner, data_tag_, destination, slots_.bytes, timeout_, post_));
  }

  void send_window() {
    for (std::uint32_t message = 0; message < window_; ++message) {
      sends_.push_back(
          take(fabric_.post_send(seat_.partner, data_tag_, buffers_.at(slots_.offset_of(message)), slots_.bytes, post_)));
    }
    for (const Operation operation : sends_) remember(operation);
    await_messages(sends_);
  }

  void post_receives() {
    for (std::uint32_t message = 0; message < window_; ++message) {
      void* const destination = buffers_.at(buffers_.receive_offset_bytes() + slots_.offset_of(message));
      receives_.push_back(take(fabric_.post_recv(seat_.partner, data_tag_, kWholeTag, destination, slots_.bytes, post_)));
    }
  }

  void await_messages(std::vector<Operation>& operations) {
    for (const Operation operation : operations) of_partner(fabric_.wait_message(operation, timeout_));
    operations.clear();
  }

  void tell_partner(Tag what) {
    const std::array<std::byte, 4> nothing{};
    of_partner(fabric_.send(seat_.partner, data_tag_ + what, nothing.data(), nothing.size(), timeout_, on_queue_));
  }

  void hear_partner(Tag what) {
    std::array<std::byte, 4> nothing{};
    of_partner(fabric_.recv(seat_.partner, data_tag_ + what, nothing.data(), nothing.size(), timeout_, on_queue_));
  }

  // --- Segments -----------------------------------------------------------------------------------------------------------------

  RemotePlace remote_place(std::uint64_t offset_bytes) const noexcept {
    return {.rank = seat_.partner, .segment = segment_, .offset_bytes = offset_bytes};
  }

  // Rounds take turns with two notifications: in a window of both directions the partner may be one round ahead, never two.
  NotificationId notification_of(std::uint32_t round) const noexcept { return 2 * thread_ + round % 2; }

  void write_message(std::uint32_t message, std::uint32_t round, bool with_notification) {
    const std::uint64_t offset = slots_.offset_of(message);
    const LocalPlace local = {.segment = segment_, .offset_bytes = offset};
    const RemotePlace remote = remote_place(buffers_.receive_offset_bytes() + offset);
    const auto posted = with_notification
                            ? fabric_.write_notify(local, remote, slots_.bytes, notification_of(round), round + 1, post_)
                            : fabric_.write(local, remote, slots_.bytes, post_);
    remember(take(posted));
  }

  void write_window(std::uint32_t round) {
    const std::uint32_t last = window_ - 1;
    for (std::uint32_t message = 0; message <= last; ++message) write_message(message, round, message == last);
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
  }

  void read_window() {
    for (std::uint32_t message = 0; message < window_; ++message) {
      const std::uint64_t offset = slots_.offset_of(message);
      const LocalPlace local = {.segment = segment_, .offset_bytes = buffers_.receive_offset_bytes() + offset};
      remember(take(fabric_.read(local, remote_place(offset), slots_.bytes, post_)));
    }
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
  }

  void await_notification(std::uint32_t round) {
    const NotificationId id = of_partner(fabric_.notification_wait(segment_, notification_of(round), 1, timeout_));
    const std::uint32_t value = take(fabric_.notification_reset(segment_, id));
    if (value == round + 1) return;
    fail(fmt::format("notification {} of round {} has the value {}, not {}: one was lost or came twice", id, round, value,
                     round + 1));
  }

  // Of the first message behind `offset_bytes`.
  volatile std::uint8_t& last_byte(std::uint64_t offset_bytes) const noexcept {
    return *static_cast<volatile std::uint8_t*>(buffers_.at(offset_bytes + slots_.bytes - 1));
  }

  // Not what the round before left there.
  static std::uint8_t stamp_of(std::uint32_t round) noexcept { return static_cast<std::uint8_t>(round + 1); }

  // Links that write by themselves need nobody here; the others, and a partner that is gone, show when the fabric is looked at.
  void await_stamp(std::uint32_t round) {
    const volatile std::uint8_t& last = last_byte(buffers_.receive_offset_bytes());
    const std::uint8_t expected = stamp_of(round);
    const std::uint64_t begin = clock_.now();
    while (true) {
      for (unsigned look = 0; look < kLooksPerPoll; ++look) {
        if (last == expected) return;
      }
      require(fabric_.progress());
      if (static_cast<double>(clock_.now() - begin) * clock_.ns_per_tick() > static_cast<double>(timeout_.ns())) {
        fail(fmt::format(
            "put {} of {} by rank {} was not seen in time (--timeout); look at what it printed, and whether it still runs", round,
            counted(slots_.bytes, "byte"), seat_.partner));
      }
    }
  }

  void remember(Operation operation) { recent_[recent_count_++ % kRemembered] = operation; }

  Fabric& fabric_;
  Buffers& buffers_;
  const Plan& plan_;
  const SampleClock& clock_;
  const Seat seat_;
  const std::uint32_t thread_;
  const Timeout timeout_ = plan_.options.fabric.timeout();
  const bool is_round_trip_ = is_latency(plan_.options.measure) && plan_.options.kind != Kind::read;
  const bool is_two_way_ = is_round_trip_ || plan_.options.measure == Measure::both_ways;
  const bool gives_ = is_two_way_ || seat_.is_active, gets_ = is_two_way_ || !seat_.is_active;
  const bool is_receiving_ = plan_.options.kind == Kind::read ? gives_ : gets_;
  const std::uint32_t window_ = is_latency(plan_.options.measure) ? 1 : plan_.options.window;  // messages of a round
  const SegmentId segment_ = segment_of(thread_);
  const Tag data_tag_ = kDataTag + kTagsOfThread * thread_;
  const PostOptions on_queue_{static_cast<QueueId>(thread_), {}};
  const PostOptions post_;  // of data
  const Slots slots_;
  Measurement result_;
  std::vector<Operation> sends_, receives_;
  std::array<Operation, kRemembered> recent_{};  // the last few that moved data; a ring
  std::size_t recent_count_ = 0;
};

}  // namespace gigabar::tool::ranks
