#include "device_ranks/round_unit.hpp"
#include "device_ranks/run_on_cpu.hpp"

namespace gigabar::tool::device_ranks {

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_rounds(device.index, plan, grid);
  return run_reporting(grid, std::size_t{grid.unit_count()} * plan.iteration_count,
                       [&](std::uint64_t* samples, UnitEnd* ends) { return RoundsBody{plan, samples, ends}; });
}

}  // namespace gigabar::tool::device_ranks
