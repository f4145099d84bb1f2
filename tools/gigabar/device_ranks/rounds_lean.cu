// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/lean_units.hpp"
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks::gpu {

template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<AtomicUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<DirectPingUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<LeanDirectUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<LeanQueueUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<PieceUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<QueuePingUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<ReadUnit, RoundPlan>);

}  // namespace gigabar::tool::device_ranks::gpu
