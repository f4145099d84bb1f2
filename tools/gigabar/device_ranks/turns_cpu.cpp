// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "device_ranks/run_on_cpu.hpp"
#include "device_ranks/turn_unit.hpp"

namespace gigabar::tool::device_ranks {
namespace {

class CpuTurnKernel : public TurnKernel {
 public:
  CpuTurnKernel(const TurnPlan& plan, const Grid& grid) : plan_(plan), grid_(grid), ends_(grid.unit_count()) {}

  Result<void> run(std::uint32_t checked_round, std::uint32_t computed_round) override {
    run_on_cpu(OneTurnBody{plan_, ends_.data(), checked_round, computed_round}, grid_);
    return {};
  }
  Result<std::vector<UnitEnd>> ends() override { return ends_; }

 private:
  const TurnPlan plan_;
  const Grid grid_;
  std::vector<UnitEnd> ends_;
};

}  // namespace

Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_turns(device.index, plan, grid);
  return run_reporting(grid, TurnsBody{plan});
}

Result<std::unique_ptr<TurnKernel>> open_turn_kernel(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_turn_kernel(device.index, plan, grid);
  return std::unique_ptr<TurnKernel>(std::make_unique<CpuTurnKernel>(plan, grid));
}

}  // namespace gigabar::tool::device_ranks
