// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime behind cuda/runtime.hpp, and pplat's kernels.
#include <cuda_runtime.h>

#include "cuda/pplat_units.hpp"
#include "cuda/runtime.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// Keeps the error for cuda_error().
bool is_done(cudaError_t code) noexcept {
  last_error = code;
  return code == cudaSuccess;
}

constexpr std::uint32_t kMaxFlagThreads = 1024;

__global__ void __launch_bounds__(kMaxFlagThreads) flags_by_block(const __grid_constant__ FlagBody body) {
  body(device::Block{}, blockIdx.x);
}

}  // namespace

Availability use_cuda_runtime(int device) {
  // cudaFree makes the context now, so that no timed call does.
  const bool is_usable = is_done(cudaSetDevice(device)) && is_done(cudaFree(nullptr));
  int version = 0;
  cudaRuntimeGetVersion(&version);
  const std::string major = std::to_string(version / 1000);
  Availability availability;
  availability.reason = is_usable ? "CUDA runtime " + major + "." + std::to_string(version % 1000 / 10) : cuda_error();
  if (is_usable) return availability;
  const bool is_old = last_error == cudaErrorInsufficientDriver;
  availability.code = is_old ? AvailabilityCode::driver_too_old : AvailabilityCode::no_device;
  if (is_old) availability.remedy = "install a driver for CUDA " + major + " or build with an older CUDA";
  return availability;
}

bool cuda_memcpy(void* destination, const void* source, std::size_t bytes) noexcept {
  return is_done(cudaMemcpy(destination, source, bytes, cudaMemcpyDefault));
}

Result<double> plain_copy_rate(int device, void* destination, const void* source, std::size_t bytes, std::uint64_t count) {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float elapsed_ms = 0;
  const auto copy = [&](std::uint64_t times) {
    bool is_good = true;
    for (std::uint64_t i = 0; i < times && is_good; ++i) {
      is_good = is_done(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream));
    }
    return is_good;
  };
  const bool is_timed = is_done(cudaSetDevice(device)) && is_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) &&
                        is_done(cudaEventCreate(&begin)) && is_done(cudaEventCreate(&end)) && copy(2) &&
                        is_done(cudaEventRecord(begin, stream)) && copy(count) && is_done(cudaEventRecord(end, stream)) &&
                        is_done(cudaEventSynchronize(end)) && is_done(cudaEventElapsedTime(&elapsed_ms, begin, end));
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (stream != nullptr) cudaStreamDestroy(stream);
  if (is_timed) return static_cast<double>(bytes) * static_cast<double>(count) / (static_cast<double>(elapsed_ms) * 1e6);
  return Error({.status = Status::device_error,
                .operation = "time copies",
                .object = "cudaMemcpyAsync",
                .native = {},
                .cause = cuda_error(),
                .remedy = {}});
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
