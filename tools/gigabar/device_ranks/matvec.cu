// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "device_ranks/matvec_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool::device_ranks::gpu {
namespace {

__global__ void __launch_bounds__(kMaxBlockThreads) matvec_by_block(const __grid_constant__ MatvecBody body) {
  extern __shared__ float fast[];
  body(device::Block{}, blockIdx.x, fast);
}

}  // namespace

Result<RepeatedKernel> open_matvec(int device, const MatvecPlan& plan, const Grid& grid) {
  const auto launch = std::make_shared<Launch>();
  if (Result<void> opened = launch->open(device, grid); !opened) return std::move(opened).error();
  const std::uint64_t bytes = plan.fast_bytes();
  if (cudaFuncSetAttribute(matvec_by_block, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // takes it back
    return no_room(std::to_string(bytes) + " bytes of shared memory",
                   "a block of this device has less; matrix and batch of a block do not fit",
                   "use smaller vectors (-m) or batches (-b)");
  }
  if (Result<void> room = check_room(device, matvec_by_block, grid, bytes); !room) return std::move(room).error();
  return repeated(launch, [=, own = launch.get()](std::uint32_t task, std::uint32_t batch) {
    matvec_by_block<<<grid.block_count, grid.threads_per_block, bytes, own->stream()>>>(
        MatvecBody{plan, static_cast<MatvecTask>(task), batch, own->ends()});
  });
}

}  // namespace gigabar::tool::device_ranks::gpu
