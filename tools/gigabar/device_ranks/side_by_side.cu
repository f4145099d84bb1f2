// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/side_by_side_units.hpp"

namespace gigabar::tool::device_ranks::gpu {

Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid) {
  return run_reporting(device, grid, TurnsBody{plan});
}

// Its blocks wait for nobody, so that they need not be on the device at once.
Result<RepeatedKernel> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid) {
  return open_repeated(device, grid, [=](Launch& own, std::uint32_t checked_round, std::uint32_t computed_round) {
    kernel_of<OneTurnBody>(grid.scope)<<<grid.block_count, grid.threads_per_block, 0, own.stream()>>>(
        OneTurnBody{plan, own.ends(), checked_round, computed_round});
  });
}

namespace {

__global__ void __launch_bounds__(kMaxBlockThreads) matvec_by_block(const __grid_constant__ MatvecBody body) {
  extern __shared__ float fast[];
  body(device::Block{}, blockIdx.x, fast);
}

}  // namespace

Result<RepeatedKernel> open_matvec(int device, const MatvecPlan& plan, const Grid& grid) {
  const std::uint64_t bytes = plan.fast_bytes();
  auto opened = open_repeated(device, grid, [=](Launch& own, std::uint32_t task, std::uint32_t batch) {
    matvec_by_block<<<grid.block_count, grid.threads_per_block, bytes, own.stream()>>>(
        MatvecBody{plan, static_cast<MatvecTask>(task), batch, own.ends()});
  });
  if (!opened) return opened;
  if (cudaFuncSetAttribute(matvec_by_block, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // takes it back
    return no_room(std::to_string(bytes) + " bytes of shared memory",
                   "a block of this device has less; matrix and batch of a block do not fit",
                   "use smaller vectors (-m) or batches (-b)");
  }
  if (Result<void> room = check_room(device, matvec_by_block, grid, bytes); !room) return std::move(room).error();
  return opened;
}

}  // namespace gigabar::tool::device_ranks::gpu
