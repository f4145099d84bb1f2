// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/turn_unit.hpp"

namespace gigabar::tool::device_ranks::gpu {
namespace {

class GpuTurnKernel : public TurnKernel {
 public:
  GpuTurnKernel(int device, const TurnPlan& plan, const Grid& grid) : device_(device), plan_(plan), grid_(grid) {}

  Result<void> open() { return launch_.open(device_, grid_); }

  // Its blocks wait for nobody, so that they need not be on the device at once.
  Result<void> run(std::uint32_t checked_round, std::uint32_t computed_round) override {
    start(OneTurnBody{plan_, launch_.ends(), checked_round, computed_round}, grid_, launch_.stream());
    return launch_.wait();
  }

  Result<std::vector<UnitEnd>> ends() override { return launch_.read_ends(); }

 private:
  const int device_;
  const TurnPlan plan_;
  const Grid grid_;
  RepeatedLaunch launch_;
};

}  // namespace

Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid) {
  return run_reporting(device, grid, TurnsBody{plan});
}

Result<std::unique_ptr<TurnKernel>> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid) {
  auto kernel = std::make_unique<GpuTurnKernel>(device, plan, grid);
  if (Result<void> opened = kernel->open(); !opened) return std::move(opened).error();
  return std::unique_ptr<TurnKernel>(std::move(kernel));
}

}  // namespace gigabar::tool::device_ranks::gpu
