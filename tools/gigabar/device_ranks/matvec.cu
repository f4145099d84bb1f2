// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/matvec_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool::device_ranks::gpu {
namespace {

__global__ void __launch_bounds__(kMostBlockThreads) matvec_by_block(const __grid_constant__ MatvecBody body) {
  extern __shared__ float fast[];
  body(device::Block{}, blockIdx.x, fast);
}

class GpuMatvecKernels : public MatvecKernels {
 public:
  GpuMatvecKernels(int device, const MatvecPlan& plan, const Grid& grid) : device_(device), plan_(plan), grid_(grid) {}

  Outcome open() {
    cudaError_t code = stream_.open(device_);
    if (code == cudaSuccess) code = ends_.allocate(grid_.unit_count());
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    if (code != cudaSuccess) return failure("prepare kernel", code);
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

  Outcome run(MatvecTask task, std::uint32_t batch) override {
    matvec_by_block<<<grid_.block_count, grid_.threads_per_block, plan_.fast_bytes(), stream_.get()>>>(
        MatvecBody{plan_, task, batch, ends_.data()});
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
  const MatvecPlan plan_;
  const Grid grid_;
  Stream stream_;
  DeviceArray<UnitEnd> ends_;
};

}  // namespace

Result<std::unique_ptr<MatvecKernels>> open_matvec(int device, const MatvecPlan& plan, const Grid& grid) {
  auto kernels = std::make_unique<GpuMatvecKernels>(device, plan, grid);
  if (Outcome opened = kernels->open(); !opened) return std::move(opened).take_error();
  return std::unique_ptr<MatvecKernels>(std::move(kernels));
}

}  // namespace gigabar::tool::device_ranks::gpu
