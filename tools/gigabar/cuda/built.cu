// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime behind cuda/runtime.hpp, and pplat's kernels.
#include <cuda_runtime.h>

#include "cuda/pplat_units.hpp"
#include "cuda/runtime.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr std::uint32_t kMaxFlagThreads = 1024;

__global__ void __launch_bounds__(kMaxFlagThreads) flags_by_block(const __grid_constant__ FlagBody body) {
  body(device::Block{}, blockIdx.x);
}

}  // namespace

Availability use_cuda_runtime(int device) {
  Availability availability;
  last_error = cudaSetDevice(device);
  if (last_error == cudaSuccess) last_error = cudaFree(nullptr);  // makes the context now, so that no timed call does
  int version = 0;
  cudaRuntimeGetVersion(&version);
  if (last_error == cudaSuccess) {
    availability.reason = "CUDA runtime " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    return availability;
  }
  const bool is_old = last_error == cudaErrorInsufficientDriver;
  availability.code = is_old ? AvailabilityCode::driver_too_old : AvailabilityCode::no_device;
  availability.reason = cuda_error();
  availability.remedy =
      is_old ? "install a driver for CUDA " + std::to_string(version / 1000) + " or build with an older CUDA" : "";
  return availability;
}

bool cuda_memcpy(void* destination, const void* source, std::size_t bytes) noexcept {
  last_error = cudaMemcpy(destination, source, bytes, cudaMemcpyDefault);
  return last_error == cudaSuccess;
}

Result<double> plain_copy_rate(int device, void* destination, const void* source, std::size_t bytes, std::uint64_t count) {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float elapsed_ms = 0;
  const auto copy = [&] { return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream); };
  last_error = cudaSetDevice(device);
  if (last_error == cudaSuccess) last_error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (last_error == cudaSuccess) last_error = cudaEventCreate(&begin);
  if (last_error == cudaSuccess) last_error = cudaEventCreate(&end);
  for (int i = 0; i < 2 && last_error == cudaSuccess; ++i) last_error = copy();
  if (last_error == cudaSuccess) last_error = cudaEventRecord(begin, stream);
  for (std::uint64_t i = 0; i < count && last_error == cudaSuccess; ++i) last_error = copy();
  if (last_error == cudaSuccess) last_error = cudaEventRecord(end, stream);
  if (last_error == cudaSuccess) last_error = cudaEventSynchronize(end);
  if (last_error == cudaSuccess) last_error = cudaEventElapsedTime(&elapsed_ms, begin, end);
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (stream != nullptr) cudaStreamDestroy(stream);
  if (last_error == cudaSuccess)
    return static_cast<double>(bytes) * static_cast<double>(count) / (static_cast<double>(elapsed_ms) * 1e6);
  ErrorRecord record;
  record.status = Status::device_error;
  record.operation = "time copies";
  record.object = "cudaMemcpyAsync";
  record.cause = cuda_error();
  return Error(record);
}

std::string cuda_error() { return std::string(cudaGetErrorName(last_error)) + ": " + cudaGetErrorString(last_error); }

Result<device_ranks::AwaitKernel> start_flags(int device, const FlagPlan& plan, std::uint32_t threads_per_block) {
  const device_ranks::Grid grid{device_ranks::ScopeKind::block, plan.block_count, threads_per_block, threads_per_block};
  // The first block alone takes the time.
  return device_ranks::gpu::start_reporting(device, grid, FlagBody{plan}, plan.sample_count(), flags_by_block);
}

Result<device_ranks::AwaitKernel> start_calls(int device, const CallPlan& plan, std::uint32_t threads) {
  const auto scope = threads == device_ranks::kWarpThreads ? device_ranks::ScopeKind::warp : device_ranks::ScopeKind::block;
  const device_ranks::Grid grid{scope, 1, threads, threads};
  return device_ranks::gpu::start_reporting(device, grid, CallBody{plan}, 0, device_ranks::gpu::kernel_of<CallBody>(scope));
}

}  // namespace gigabar::tool
