// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/matvec_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool::device_ranks::gpu {
namespace {

__global__ void __launch_bounds__(kMaxBlockThreads) matvec_by_block(const __grid_constant__ MatvecBody body) {
  extern __shared__ float fast[];
  body(device::Block{}, blockIdx.x, fast);
}

class GpuMatvecKernels : public MatvecKernels {
 public:
  GpuMatvecKernels(int device, const MatvecPlan& plan, const Grid& grid) : device_(device), plan_(plan), grid_(grid) {}

  Result<void> open() {
    if (Result<void> opened = launch_.open(device_, grid_); !opened) return opened;
    const auto bytes = static_cast<int>(plan_.fast_bytes());
    if (cudaFuncSetAttribute(matvec_by_block, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess) {
      return check_room(device_, matvec_by_block, grid_, plan_.fast_bytes());
    }
    cudaGetLastError();
    ErrorRecord record;
    record.status = Status::invalid_argument;
    record.operation = "start kernel";
    record.object = std::to_string(bytes) + " bytes of shared memory";
    record.cause = "a block of this device has less; matrix and batch of a block do not fit";
    record.remedy = "use smaller vectors (-m) or batches (-b)";
    return Error(std::move(record));
  }

  Result<void> run(MatvecTask task, std::uint32_t batch) override {
    matvec_by_block<<<grid_.block_count, grid_.threads_per_block, plan_.fast_bytes(), launch_.stream()>>>(
        MatvecBody{plan_, task, batch, launch_.ends()});
    return launch_.wait();
  }

  Result<std::vector<UnitEnd>> ends() override { return launch_.read_ends(); }

 private:
  const int device_;
  const MatvecPlan plan_;
  const Grid grid_;
  RepeatedLaunch launch_;
};

}  // namespace

Result<std::unique_ptr<MatvecKernels>> open_matvec(int device, const MatvecPlan& plan, const Grid& grid) {
  auto kernels = std::make_unique<GpuMatvecKernels>(device, plan, grid);
  if (Result<void> opened = kernels->open(); !opened) return std::move(opened).error();
  return std::unique_ptr<MatvecKernels>(std::move(kernels));
}

}  // namespace gigabar::tool::device_ranks::gpu
