// SPDX-License-Identifier: Apache-2.0
// Those units together that one side has: its partner's kernel has nothing to do, or another unit, which answers.
#include "device_ranks/atomic_unit.hpp"
#include "device_ranks/piece_unit.hpp"
#include "device_ranks/read_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks::gpu {

template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<AtomicUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<PieceUnit, RoundPlan>);
template Result<KernelRun> run_reporting(int, const Grid&, UnitBody<ReadUnit, RoundPlan>);

}  // namespace gigabar::tool::device_ranks::gpu
