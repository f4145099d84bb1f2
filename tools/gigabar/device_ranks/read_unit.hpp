// SPDX-License-Identifier: Apache-2.0
// Reads one after another that nobody checks, in a loop that lies in registers as a whole: see lean_unit.hpp. The partner takes no
// part.
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit.hpp"
#include "device_ranks/unit_words.hpp"

namespace gigabar::tool::device_ranks {

// Whether a ReadUnit can do a plan, and does what a RoundUnit would.
inline bool reads_in_turn(const RoundPlan& plan) {
  return plan.op == Op::read && plan.measure == Measure::latency && !plan.is_checked && !plan.only_fills;
}

template <class Scope>
class ReadUnit {
 public:
  // `end` is zeroed.
  GIGABAR_DEVICE ReadUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope),
        plan_(plan),
        part_(part_of(plan, index)),
        post_{queue_of(plan, index), {plan.timeout_ns}, plan.sharing},
        end_(end) {}

  // `samples`: [iteration_count].
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const std::uint32_t rounds = part_.is_there ? plan_.round_count() : 0, warm_up = plan_.warm_up_count;
    Status status = Status::ok;
    std::uint32_t round = 0;
    for (; round < rounds; ++round) {
      if (round % plan_.rounds_per_look == 0 && is_over(scope_, clock, plan_.timeout_ns)) status = Status::timed_out;
      if (status != Status::ok) break;
      scope_.sync();
      const std::uint64_t before = ticks();
      status = read();
      const std::uint64_t after = ticks();
      if (scope_.rank() == 0 && round >= warm_up) samples[round - warm_up] = after - before;
    }
    clock.report(scope_, true, status, round, end_);
  }

 private:
  GIGABAR_DEVICE Status read() const {
    const Status status = device::read(scope_, plan_.fabric, {kDataSegment, plan_.receive_offset_bytes + part_.begin},
                                       {plan_.partner, kDataSegment, part_.begin}, part_.bytes, post_);
    return status == Status::ok ? device::wait(scope_, plan_.fabric, post_.queue, post_.timeout) : status;
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const Part part_;
  const device::Post post_;
  UnitEnd* const end_;
};

}  // namespace gigabar::tool::device_ranks
