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

// Those of one rank stand side by side, and share no line of the cache.
class alignas(128) Exchange {
 public:
  // `buffers` are registered as segment_of(thread) at this rank and its partner when the kind is write or read.
  Exchange(Fabric& fabric, Buffers& buffers, const Plan& plan, const SampleClock& clock, Seat seat, std::uint32_t thread)
      : fabric_(fabric), buffers_(buffers), plan_(plan), clock_(clock), seat_(seat), thread_(thread) {
    on_queue_.queue = static_cast<QueueId>(thread);
  }

  // Warm-up and samples of one size; with the partner, and the rank's other threads, at the same time. `policy`: instead of the
  // fabric's. `gate`: of the threads.
  Measurement measure(std::uint64_t bytes, const std::optional<PathPolicy>& policy, std::barrier<>& gate) {
    slots_ = slots_for(bytes, window_, plan_.options.is_checked);
    post_ = on_queue_;
    post_.policy = policy;
    result_ = {};
    recent_count_ = 0;
    if (seat_.is_idle) {
      begin_together(gate);
      return {};
    }
    const Counts counts = counts_for(plan_.options, bytes);
    if (plan_.options.kind == Kind::put) clear_stamp();
    result_.samples_ps.reserve(seat_.is_active ? counts.iterations : 0);
    // A round trip is two ways; a read is one operation, and a window is what it is.
    const bool is_halved = is_latency_ && plan_.options.kind != Kind::read;
    const double ps_per_tick = clock_.ns_per_tick() * 1000.0 * (is_halved ? 0.5 : 1.0);
    for (std::uint32_t round = 0; round < counts.warm_up + counts.iterations; ++round) {
      if (round == counts.warm_up) begin_together(gate);
      if (plan_.options.is_checked) prepare(round);
      const std::uint64_t start = clock_.now();
      is_latency_ ? do_round_trip(round) : do_window(round);
      const std::uint64_t ticks = clock_.now() - start;
      if (seat_.is_active && round >= counts.warm_up) {
        result_.samples_ps.push_back(static_cast<std::uint64_t>(static_cast<double>(ticks) * ps_per_tick));
      }
      if (plan_.options.is_checked) check(round);
      // Outside the samples: one in so many would pay for all of them.
      if ((round + 1) % kWaitEvery == 0) of_partner(fabric_.wait(on_queue_.queue, timeout_));
    }
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
    result_.path = path_use_of(reports());
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
    if (kind == Kind::read) {
      if (seat_.is_active) read_window();
      return;
    }
    const auto give = [&] {
      if (kind == Kind::send) return send_message();
      if (kind == Kind::put) stamp(round);
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
    const bool is_both = plan_.options.measure == Measure::both_ways;
    const bool gives = is_both || seat_.is_active;
    const bool gets = is_both || !seat_.is_active;
    switch (plan_.options.kind) {
      case Kind::send:
        if (gets) post_receives();
        if (gives) send_window();
        if (gets) await_messages(receives_);
        if (is_both) return;  // each has seen the other's window
        if (gives) hear_partner(kAcknowledgement);
        if (gets) tell_partner(kAcknowledgement);
        return;
      case Kind::write:
        if (gives) write_window(round);
        await_notification(round);  // of the other's window, or that ours has arrived
        if (!gives) notify_partner(round);
        return;
      case Kind::read:
        if (gives) read_window();
        return;
      case Kind::put: return;  // has no windows
    }
  }

  // --- Checks -------------------------------------------------------------------------------------------------------------------

  bool is_receiving() const noexcept {
    if (plan_.options.kind == Kind::read) return seat_.is_active || plan_.options.measure == Measure::both_ways;
    return is_latency_ || !seat_.is_active || plan_.options.measure == Measure::both_ways;
  }

  void prepare(std::uint32_t round) {
    buffers_.fill_to_send(slots_, fabric_.rank(), round);
    if (is_receiving()) buffers_.poison_to_receive(slots_, seat_.partner, round);
    await_partner();
  }

  void check(std::uint32_t round) {
    // What this rank still posts or answers is done, and the partner has what it was sent, before either changes its data.
    of_partner(fabric_.wait(on_queue_.queue, timeout_));
    await_partner();
    if (!is_receiving()) return;
    const bool has_fault = plan_.options.fault_bytes == slots_.bytes && slots_.bytes != 0 && round == 0;
    if (has_fault) buffers_.plant_fault(slots_);
    auto wrong = buffers_.check_received(slots_, seat_.partner, round, window_);
    if (!wrong) return;
    if (result_.wrong_count++ == 0) result_.first_wrong = std::move(*wrong);
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

  void notify_partner(std::uint32_t round) {
    take(fabric_.notify(seat_.partner, segment_, notification_of(round), round + 1, post_));
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

  // Nothing of another size is taken for the first round's.
  void clear_stamp() {
    last_byte(buffers_.receive_offset_bytes()) = 0;
    await_partner();
  }

  // A byte that the round before did not leave there.
  void stamp(std::uint32_t round) { last_byte(0) = static_cast<std::uint8_t>(round + 1); }

  // Links that write by themselves need nobody here; the others, and a partner that is gone, show when the fabric is looked at.
  void await_stamp(std::uint32_t round) {
    const volatile std::uint8_t& last = last_byte(buffers_.receive_offset_bytes());
    const auto expected = static_cast<std::uint8_t>(round + 1);
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

  // --- Reports ------------------------------------------------------------------------------------------------------------------

  void remember(Operation operation) { recent_[recent_count_++ % kRemembered] = operation; }

  std::vector<OperationReport> reports() const {
    std::vector<OperationReport> found;
    for (std::size_t i = recent_count_ - std::min(recent_count_, kRemembered); i < recent_count_; ++i)
      found.push_back(take(fabric_.report(recent_[i % kRemembered])));
    return found;
  }

  Fabric& fabric_;
  Buffers& buffers_;
  const Plan& plan_;
  const SampleClock& clock_;
  Seat seat_;
  std::uint32_t thread_;
  Timeout timeout_ = plan_.options.fabric.timeout();
  bool is_latency_ = is_latency(plan_.options.measure);
  std::uint32_t window_ = is_latency_ ? 1 : plan_.options.window;  // messages of a round
  SegmentId segment_ = segment_of(thread_);
  Tag data_tag_ = kDataTag + kTagsOfThread * thread_;
  PostOptions on_queue_;
  // Of the size under way.
  Slots slots_;
  PostOptions post_;
  Measurement result_;
  std::vector<Operation> sends_;
  std::vector<Operation> receives_;
  std::array<Operation, kRemembered> recent_{};  // the last few that moved data; a ring
  std::size_t recent_count_ = 0;
};

}  // namespace gigabar::tool::ranks
