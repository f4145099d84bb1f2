// Which unit does a plan.
#pragma once

#include "device_ranks/atomic_unit.hpp"
#include "device_ranks/lean_unit.hpp"
#include "device_ranks/round_unit.hpp"
#include "device_ranks/unit_body.hpp"

namespace gigabar::tool::device_ranks {

// run(the kernel's body), which has yet to be told where it reports.
template <class Run>
auto run_body(const RoundPlan& plan, const Run& run) {
  if (is_atomic(plan.op)) return run(UnitBody<AtomicUnit, RoundPlan>{plan});
  if (is_lean(plan) && plan.queue_count == 0) return run(UnitBody<LeanDirectUnit, RoundPlan>{plan});
  if (is_lean(plan)) return run(UnitBody<LeanQueueUnit, RoundPlan>{plan});
  return run(UnitBody<RoundUnit, RoundPlan>{plan});
}

}  // namespace gigabar::tool::device_ranks
