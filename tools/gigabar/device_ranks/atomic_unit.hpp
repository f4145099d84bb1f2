// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel that changes a word of its partner and gets its old value, round by round. The partner's kernel has nothing
// to do. A latency's one unit has its queue to itself (has_channel()).
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
    Status status =
        device::Channel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment, queue_of(plan_, index_), channel);
    const std::uint64_t offset = plan_.words_offset_bytes + index_ * sizeof(std::uint64_t);
    const device::Timeout timeout{plan_.timeout_ns};
    std::uint64_t expected = 0;  // what the word holds before the first round
    if (status == Status::ok) status = channel.atomic_fetch_add(scope_, offset, 0, timeout, expected);
    std::uint32_t round = 0;
    for (; status == Status::ok && round < plan_.round_count(); ++round) {
      if (round % plan_.rounds_per_look == 0 && is_over(scope_, clock, plan_.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      std::uint64_t old = 0;
      scope_.sync();
      const std::uint64_t before = ticks();
      status = plan_.op == Op::fetch_add ? channel.atomic_fetch_add(scope_, offset, 1, timeout, old)
                                         : channel.compare_swap(scope_, offset, expected, expected + 1, timeout, old);
      if (plan_.plants_fault && round + 1 == plan_.round_count()) old ^= 1;
      // In front of the clock, which would not wait for the value.
      if (status == Status::ok && old != expected && scope_.rank() == 0) report_wrong(end_, {round, 0, 0}, expected, old);
      const std::uint64_t after = ticks();
      if (scope_.rank() == 0 && round >= plan_.warm_up_count) samples[round - plan_.warm_up_count] = after - before;
      ++expected;
    }
    channel.close(scope_);
    clock.report(scope_, true, status, round, end_);
  }

 private:
  const Scope& scope_;
  const RoundPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
};

}  // namespace gigabar::tool::device_ranks
