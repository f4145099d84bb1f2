// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/turn_unit.hpp"

namespace gigabar::tool::device_ranks::gpu {
namespace {

class GpuTurnKernel : public TurnKernel {
 public:
  GpuTurnKernel(int device, const TurnPlan& plan, const Grid& grid) : device_(device), plan_(plan), grid_(grid) {}

  cudaError_t open() {
    cudaError_t code = stream_.open(device_);
    if (code == cudaSuccess) code = ends_.allocate(grid_.unit_count());
    return code == cudaSuccess ? cudaDeviceSynchronize() : code;
  }

  // Its blocks wait for nobody, so that they need not be on the device at once.
  Outcome run(std::uint32_t checked_round, std::uint32_t computed_round) override {
    start(OneTurnBody{plan_, ends_.data(), checked_round, computed_round}, grid_, stream_.get());
    cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_.get());
    return code == cudaSuccess ? Outcome() : Outcome(failure("run kernel", code));
  }

  Result<std::vector<UnitEnd>> ends() override {
    std::vector<UnitEnd> found;
    if (const cudaError_t code = ends_.read(found); code != cudaSuccess) return failure("read kernel's report", code);
    return found;
  }

 private:
  const int device_;
  const TurnPlan plan_;
  const Grid grid_;
  Stream stream_;
  DeviceArray<UnitEnd> ends_;
};

}  // namespace

Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid) {
  return run_reporting(device, grid, TurnsBody{plan});
}

Result<std::unique_ptr<TurnKernel>> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid) {
  auto kernel = std::make_unique<GpuTurnKernel>(device, plan, grid);
  if (const cudaError_t code = kernel->open(); code != cudaSuccess) return failure("prepare kernel", code);
  return std::unique_ptr<TurnKernel>(std::move(kernel));
}

}  // namespace gigabar::tool::device_ranks::gpu
