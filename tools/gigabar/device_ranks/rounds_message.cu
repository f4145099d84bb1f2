// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/lean_units.hpp"
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks::gpu {

template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<FirstMessageUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<SecondMessageUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<MessageWindowUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<FirstReplyUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<SecondReplyUnit, RoundPlan>);

}  // namespace gigabar::tool::device_ranks::gpu
