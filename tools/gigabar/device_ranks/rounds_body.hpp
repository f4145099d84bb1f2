// SPDX-License-Identifier: Apache-2.0
// Which unit does a plan.
#pragma once

#include "device_ranks/lean_units.hpp"
#include "device_ranks/message_unit.hpp"
#include "device_ranks/round_unit.hpp"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks {

// run(the kernel's body), which has yet to be told where it reports.
template <class Run>
auto run_body(const RoundPlan& plan, const Run& run) {
  if (plan.op == Op::message && plan.measure != Measure::latency) return run(UnitBody<MessageWindowUnit, RoundPlan>{plan});
  if (plan.op == Op::message) {
    return plan.is_active ? run(UnitBody<FirstMessageUnit, RoundPlan>{plan}) : run(UnitBody<SecondMessageUnit, RoundPlan>{plan});
  }
  if (is_atomic(plan.op)) return run(UnitBody<AtomicUnit, RoundPlan>{plan});
  if (!plan.is_of_blocks && reads_in_turn(plan)) return run(UnitBody<ReadUnit, RoundPlan>{plan});
  if (has_pieces(plan)) return run(UnitBody<PieceUnit, RoundPlan>{plan});
  if (!is_lean(plan)) return run(UnitBody<RoundUnit, RoundPlan>{plan});
  const bool is_direct = plan.queue_count == 0;
  if (plan.measure == Measure::latency)
    return is_direct ? run(UnitBody<DirectPingUnit, RoundPlan>{plan}) : run(UnitBody<QueuePingUnit, RoundPlan>{plan});
  return is_direct ? run(UnitBody<LeanDirectUnit, RoundPlan>{plan}) : run(UnitBody<LeanQueueUnit, RoundPlan>{plan});
}

}  // namespace gigabar::tool::device_ranks
