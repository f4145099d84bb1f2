// SPDX-License-Identifier: Apache-2.0
// One scope of pingpong's kernels: checks what came, computes, and sends its part of the message at once. Messages of a ring are
// computed and checked word by word, as they go and come; writes are from memory to memory.
#pragma once

#include "device_ranks/unit.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool::device_ranks {

template <class Scope>
class TurnUnit {
 public:
  // `end` is zeroed before the first.
  GIGABAR_DEVICE TurnUnit(const Scope& scope, const TurnPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end), offset_(index * plan.part_stride_bytes), words_(scope, plan, end) {
    const std::uint64_t left = plan.message_bytes > offset_ ? plan.message_bytes - offset_ : 0;
    bytes_ = left < plan.part_stride_bytes ? left : plan.part_stride_bytes;
  }

  // The partner's part of `round` is right.
  GIGABAR_DEVICE void check(std::uint32_t round) {
    if (plan_.uses_messages) return;
    check_words(scope_, words_at(plan_.receive_offset_bytes + offset_), bytes_, plan_.partner, {round, 0, offset_}, flip(round),
                end_);
  }

  // This rank's part of `round`, and time that passes as if it took that long to find it.
  GIGABAR_DEVICE void compute(std::uint32_t round) {
    const std::uint64_t begin_ns = plan_.work_ns != 0 ? device::now_ns() : 0;
    if (!plan_.uses_messages) fill_words(scope_, words_at(offset_), bytes_, plan_.fabric.rank, {round, 0, offset_});
    while (plan_.work_ns != 0 && device::now_ns() - begin_ns < plan_.work_ns) {
    }
    scope_.sync();
  }

  // All rounds in one kernel. `samples`: [round_count], of the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) {
    const RunClock clock;
    const std::uint32_t rounds = bytes_ != 0 ? plan_.round_count : 0;
    std::uint32_t round = 0;
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, to_));
    if (plan_.uses_messages) words_.note(open_ring(plan_.fabric, plan_.partner, index_, from_));
    for (; round < rounds && !words_.is_over(clock); ++round) {
      const std::uint64_t before = ticks();
      if (plan_.is_active) {
        if (round != 0) check(round - 1);
        compute(round);
        send(round);
        take(round);
      } else {
        take(round);
        if (!words_.is_ok()) break;
        check(round);
        compute(round);
        send(round);
      }
      if (plan_.is_active && scope_.rank() == 0) samples[round] = ticks() - before;
    }
    if (plan_.is_active && words_.is_ok() && round != 0) check(round - 1);
    to_.close(scope_);
    from_.close(scope_);
    clock.report(scope_, plan_.is_active, words_.status(), round, end_);
  }

 private:
  GIGABAR_DEVICE std::uint32_t* words_at(std::uint64_t offset) const { return words_.template at<std::uint32_t>(offset, bytes_); }

  GIGABAR_DEVICE std::uint32_t flip(std::uint32_t round) const {
    return plan_.plants_fault && round + 1 == plan_.round_count && index_ == 0 ? 1 : 0;
  }

  GIGABAR_DEVICE void send(std::uint32_t round) {
    if (plan_.uses_messages) {
      const auto word = [&](std::uint64_t i) { return data_word(plan_.fabric.rank, round, 0, offset_ / 4 + i); };
      words_.note(device::send_words(scope_, to_, bytes_, word, words_.timeout()));
      return;
    }
    words_.note(device::write_notify(scope_, plan_.fabric, {kDataSegment, offset_},
                                     {plan_.partner, kDataSegment, plan_.receive_offset_bytes + offset_}, bytes_, index_,
                                     round + 1));
  }

  GIGABAR_DEVICE void take(std::uint32_t round) {
    if (!plan_.uses_messages) {
      words_.take(index_, round + 1, {round, 0, offset_});
      return;
    }
    if (!words_.is_ok()) return;
    const auto check_word = [&](std::uint64_t i, std::uint32_t word, std::uint32_t) {
      const std::uint32_t right = data_word(plan_.partner, round, 0, offset_ / 4 + i);
      const std::uint32_t found = word ^ (i == bytes_ / 4 / 2 ? flip(round) : 0);
      if (found != right) report_wrong(end_, {round, 0, offset_ + i * 4}, right, found);
    };
    std::uint64_t bytes = 0;
    words_.note(device::recv_words(scope_, from_, bytes_, check_word, bytes, words_.timeout()));
    words_.expect({round, 0, offset_}, bytes_, bytes);
  }

  const Scope& scope_;
  const TurnPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
  const std::uint64_t offset_;
  std::uint64_t bytes_ = 0;
  UnitWords<Scope> words_;
  device::SendRing to_;
  device::RecvRing from_;
};

// The kernel that does all rounds.
using TurnsBody = UnitBody<TurnUnit, TurnPlan>;

// The kernel of one turn, which the CPU sends: checks what came in one round and computes what goes in another.
struct OneTurnBody {
  TurnPlan plan;
  UnitEnd* ends = nullptr;
  std::uint32_t checked_round = kNoRound;
  std::uint32_t computed_round = kNoRound;

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit) const {
    TurnUnit<Scope> turn(scope, plan, unit, ends + unit);
    if (checked_round != kNoRound) turn.check(checked_round);
    if (computed_round != kNoRound) turn.compute(computed_round);
  }
};

}  // namespace gigabar::tool::device_ranks
