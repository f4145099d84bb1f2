// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel and its partner's, which send each other messages by rings of their own, one to each unit: in turn, or in
// windows that a message of 4 bytes answers.
#pragma once

#include "device_ranks/unit.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool::device_ranks {

// What a kernel plays. The code of two would leave too few registers to each.
enum class Play : std::uint8_t { first_of_turns, second_of_turns, windows };

template <class Scope, Play What>
struct MessageUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed
  const Part part = part_of(plan, index);
  std::byte* const own = device::detail::find_bytes(plan.fabric, plan.fabric.rank, kDataSegment, 0, 0).address;  // its segment

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    device::SendRing to;
    device::RecvRing from;
    Done done;
    done.status = open_ring(plan.fabric, plan.partner, index, to);
    if (done.status == Status::ok) done.status = open_ring(plan.fabric, plan.partner, index, from);
    if (done.status == Status::ok && part.is_there) {
      if constexpr (What == Play::windows)
        play_windows(to, from, clock, samples, done);
      else
        play_turns(to, from, clock, samples, done);
    }
    to.close(scope);
    from.close(scope);
    clock.report(scope, plan.is_active, done.status, done.rounds, end);
  }

 private:
  // Before a round. False: the time is over.
  GIGABAR_DEVICE bool begin(std::uint32_t round, const RunClock& clock, Done& done) const {
    if (round % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns)) done.status = Status::timed_out;
    if (round == plan.warm_up_count && scope.rank() == 0) end->timed_from_ns = device::now_ns();
    return done.status == Status::ok;
  }

  // A message each way per round.
  GIGABAR_DEVICE void play_turns(device::SendRing& to, device::RecvRing& from, const RunClock& clock, std::uint64_t* samples,
                                 Done& done) const {
    constexpr bool kIsActive = What == Play::first_of_turns;
    const std::uint32_t rounds = plan.round_count(), warm_up = plan.warm_up_count;
    const bool is_checked = plan.is_checked;
    for (; done.rounds < rounds && begin(done.rounds, clock, done); ++done.rounds) {
      if (is_checked && kIsActive) fill(done.rounds);
      if constexpr (kIsActive) scope.sync();
      const std::uint64_t before = ticks();
      if constexpr (kIsActive) done.status = send(to, sent(0));
      if (done.status == Status::ok) done.status = recv(from, received(0));
      const std::uint64_t after = ticks();
      if (done.status == Status::ok && is_checked) {
        check(done.rounds, 0, true);
        if constexpr (!kIsActive) fill(done.rounds);  // behind the last message's words: receiving syncs the scope
      }
      if (!kIsActive && done.status == Status::ok) done.status = send(to, sent(0));
      if (done.status != Status::ok) return;
      if (kIsActive && scope.rank() == 0 && done.rounds >= warm_up) samples[done.rounds - warm_up] = after - before;
    }
  }

  // Windows of messages, which a message with the number of the round answers.
  GIGABAR_DEVICE void play_windows(device::SendRing& to, device::RecvRing& from, const RunClock& clock, std::uint64_t* samples,
                                   Done& done) const {
    const std::uint32_t rounds = plan.round_count();
    for (; done.rounds < rounds && begin(done.rounds, clock, done); ++done.rounds) {
      const std::uint32_t round = done.rounds;
      if (plan.is_checked && plan.is_active) fill(round);
      if (plan.is_active) scope.sync();
      done.status = plan.is_active ? send_window(to) : recv_window(from, round);
      if (done.status == Status::ok) {
        done.status = plan.is_active ? take_answer(from, round) : device::send_value(scope, to, round, timeout());
      }
      if (done.status != Status::ok) return;
      if (plan.is_active && scope.rank() == 0 && round >= plan.warm_up_count) {
        samples[round - plan.warm_up_count] = device::now_ns();
      }
    }
  }

  GIGABAR_DEVICE device::Timeout timeout() const { return {plan.timeout_ns}; }
  // What is sent, or received, in a slot of a window.
  GIGABAR_DEVICE std::uint32_t* sent(std::uint32_t slot) const { return words_at(slot * plan.slot_stride_bytes); }
  GIGABAR_DEVICE std::uint32_t* received(std::uint32_t slot) const {
    return words_at(plan.receive_offset_bytes + slot * plan.slot_stride_bytes);
  }
  GIGABAR_DEVICE std::uint32_t* words_at(std::uint64_t offset) const {
    return reinterpret_cast<std::uint32_t*>(own + offset + part.begin);
  }
  // One slot behind the other, again and again. A division, or a product and three sums, would take as long as a tenth of a
  // message.
  struct Slots {
    std::uint32_t* const first;
    const std::uint64_t stride_words;
    const std::uint32_t count;
    std::uint32_t* at = first;
    std::uint32_t number = 0;

    GIGABAR_DEVICE void pass() {
      number = number + 1 == count ? 0 : number + 1;
      at = number == 0 ? first : at + stride_words;
    }
  };
  GIGABAR_DEVICE Slots slots_from(std::uint32_t* first) const {
    return {first, plan.slot_stride_bytes / sizeof(std::uint32_t), plan.slot_count};
  }

  GIGABAR_DEVICE Status send(device::SendRing& to, const std::uint32_t* words) const {
    return device::send(scope, to, words, part.bytes, timeout());
  }
  GIGABAR_DEVICE Status recv(device::RecvRing& from, std::uint32_t* words) const {
    std::uint64_t bytes = 0;
    const Status status = device::recv(scope, from, words, part.bytes, bytes, timeout());
    return status == Status::ok && bytes != part.bytes ? Status::device_error : status;
  }

  GIGABAR_DEVICE Status send_window(device::SendRing& to) const {
    Status status = Status::ok;
    Slots slots = slots_from(sent(0));
    for (std::uint32_t left = plan.window; left != 0 && status == Status::ok; --left, slots.pass()) status = send(to, slots.at);
    return status;
  }
  GIGABAR_DEVICE Status recv_window(device::RecvRing& from, std::uint32_t round) const {
    Status status = Status::ok;
    Slots slots = slots_from(received(0));
    for (std::uint32_t left = plan.window; left != 0 && status == Status::ok; --left, slots.pass()) {
      status = recv(from, slots.at);
      if (status == Status::ok && plan.is_checked) check(round, slots.number, left == plan.window);
    }
    return status;
  }
  GIGABAR_DEVICE Status take_answer(device::RecvRing& from, std::uint32_t round) const {
    std::uint32_t value = 0;
    const Status status = device::recv_value(scope, from, value, timeout());
    if (status == Status::ok && value != round && scope.rank() == 0) report_wrong(end, {round, 0, 0}, round, value);
    return status;
  }

  // What this rank sends in a round.
  GIGABAR_DEVICE void fill(std::uint32_t round) const {
    const std::uint32_t count = plan.slot_count < plan.window ? plan.slot_count : plan.window;
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      fill_words(scope, sent(slot), part.bytes, plan.fabric.rank, {round, slot, part.begin});
    }
    scope.sync();
  }
  GIGABAR_DEVICE void check(std::uint32_t round, std::uint32_t slot, bool is_first) const {
    const bool is_false = plan.plants_fault && round + 1 == plan.round_count() && is_first;
    check_words(scope, received(slot), part.bytes, plan.partner, {round, slot, part.begin}, is_false ? 1 : 0, end);
    scope.sync();
  }
};

template <class Scope>
using FirstMessageUnit = MessageUnit<Scope, Play::first_of_turns>;
template <class Scope>
using SecondMessageUnit = MessageUnit<Scope, Play::second_of_turns>;
template <class Scope>
using MessageWindowUnit = MessageUnit<Scope, Play::windows>;
template <>
inline constexpr bool kTakesBlocks<FirstMessageUnit> = true;
template <>
inline constexpr bool kTakesBlocks<SecondMessageUnit> = true;
template <>
inline constexpr bool kTakesBlocks<MessageWindowUnit> = true;

}  // namespace gigabar::tool::device_ranks
