// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel that changes a word of its partner and gets its old value, round by round. The partner's kernel has nothing
// to do.
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit.hpp"
#include "device_ranks/unit_words.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

template <class Scope>
class AtomicUnit {
 public:
  // `end` is zeroed.
  GIGABAR_DEVICE AtomicUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end) {}

  // `samples`: [iteration_count].
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    device::Channel channel;
    Status status = has_channel(plan_) ? device::Channel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment,
                                                               queue_of(plan_, index_), channel)
                                       : Status::ok;
    std::uint64_t expected = 0;  // what the word holds before the first round
    if (status == Status::ok) status = fetch_add(channel, 0, expected);
    std::uint32_t round = 0;
    for (; status == Status::ok && round < plan_.round_count(); ++round) {
      if (round % plan_.rounds_per_look == 0 && is_over(scope_, clock, plan_.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      std::uint64_t old = 0;
      scope_.sync();
      const std::uint64_t before = ticks();
      status = plan_.op == Op::fetch_add ? fetch_add(channel, 1, old) : compare_swap(channel, expected, old);
      if (plan_.plants_fault && round + 1 == plan_.round_count()) old ^= 1;
      // In front of the clock, which would not wait for the value.
      if (status == Status::ok && old != expected && scope_.rank() == 0) report_wrong(end_, {round, 0, 0}, expected, old);
      const std::uint64_t after = ticks();
      if (scope_.rank() == 0 && round >= plan_.warm_up_count) samples[round - plan_.warm_up_count] = after - before;
      ++expected;
    }
    if (has_channel(plan_)) channel.close(scope_);
    if (scope_.rank() != 0) return;
    end_->status = status;
    end_->rounds_done = round;
    clock.stop(end_->elapsed_ns, end_->elapsed_ticks);
  }

 private:
  GIGABAR_DEVICE std::uint64_t offset() const { return plan_.words_offset_bytes + index_ * sizeof(std::uint64_t); }
  GIGABAR_DEVICE RemotePlace place() const { return {plan_.partner, kDataSegment, offset()}; }
  GIGABAR_DEVICE device::Timeout timeout() const { return {plan_.timeout_ns}; }

  GIGABAR_DEVICE Status fetch_add(device::Channel& channel, std::uint64_t value, std::uint64_t& old) const {
    if (has_channel(plan_)) return channel.atomic_fetch_add(scope_, offset(), value, timeout(), old);
    return device::atomic_fetch_add(scope_, plan_.fabric, place(), value, timeout(), old, queue_of(plan_, index_));
  }
  GIGABAR_DEVICE Status compare_swap(device::Channel& channel, std::uint64_t expected, std::uint64_t& old) const {
    if (has_channel(plan_)) return channel.compare_swap(scope_, offset(), expected, expected + 1, timeout(), old);
    return device::compare_swap(scope_, plan_.fabric, place(), expected, expected + 1, timeout(), old, queue_of(plan_, index_));
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
};

}  // namespace gigabar::tool::device_ranks
