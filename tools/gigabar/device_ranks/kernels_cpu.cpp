// SPDX-License-Identifier: Apache-2.0
// The kernels of these commands as threads of the CPU, and who runs them.
#include <memory>
#include <vector>

#include "device_ranks/round_unit.hpp"
#include "device_ranks/run_on_cpu.hpp"
#include "device_ranks/side_by_side_units.hpp"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks {
namespace {

// start(first, second, ends) runs the kernel once.
template <class Start>
RepeatedKernel repeated(const Grid& grid, const Start& start) {
  const auto all = std::make_shared<KernelRun>();
  all->ends.resize(grid.unit_count());
  return {[=](std::uint32_t first, std::uint32_t second) {
            start(first, second, all->ends.data());
            return Result<void>();
          },
          [all] { return Result(*all); }};
}

}  // namespace

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_rounds(device.index, plan, grid);
  return run_body(plan, [&](const auto& body) { return run_reporting(grid, body); });
}

Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_turns(device.index, plan, grid);
  return run_reporting(grid, TurnsBody{plan});
}

Result<RepeatedKernel> open_turn_kernel(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_turn_kernel(device.index, plan, grid);
  return repeated(grid, [=](std::uint32_t checked_round, std::uint32_t computed_round, UnitEnd* ends) {
    run_on_cpu(OneTurnBody{plan, ends, checked_round, computed_round}, grid);
  });
}

Result<RepeatedKernel> open_matvec(const DeviceInfo& device, const MatvecPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_matvec(device.index, plan, grid);
  const std::size_t fast_values = plan.fast_bytes() / sizeof(float);
  const auto fast = std::make_shared<std::vector<float>>(fast_values * grid.unit_count());
  return repeated(grid, [=](std::uint32_t task, std::uint32_t batch, UnitEnd* ends) {
    const MatvecBody body{plan, static_cast<MatvecTask>(task), batch, ends};
    run_on_cpu([&](const auto& scope, std::uint32_t unit) { body(scope, unit, fast->data() + unit * fast_values); }, grid);
  });
}

}  // namespace gigabar::tool::device_ranks
