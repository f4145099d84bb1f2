#include "device_ranks/lean_unit.hpp"
#include "device_ranks/round_unit.hpp"
#include "device_ranks/run_on_cpu.hpp"

namespace gigabar::tool::device_ranks {

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_rounds(device.index, plan, grid);
  const std::size_t samples = std::size_t{grid.unit_count()} * plan.iteration_count;
  if (is_lean(plan))
    return run_reporting(grid, samples, [&](std::uint64_t* ticks, UnitEnd* ends) { return LeanBody{plan, ticks, ends}; });
  return run_reporting(grid, samples, [&](std::uint64_t* ticks, UnitEnd* ends) { return RoundsBody{plan, ticks, ends}; });
}

}  // namespace gigabar::tool::device_ranks
