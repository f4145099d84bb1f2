#include "device_ranks/round_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool::device_ranks::gpu {

Result<KernelRun> run_rounds(int device, const RoundPlan& plan, const Grid& grid) {
  return run_reporting(device, grid, std::size_t{grid.unit_count()} * plan.iteration_count,
                       [&](std::uint64_t* samples, UnitEnd* ends) { return RoundsBody{plan, samples, ends}; });
}

}  // namespace gigabar::tool::device_ranks::gpu
