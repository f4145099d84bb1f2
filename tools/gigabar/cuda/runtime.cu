// The real CUDA runtime behind cuda/runtime.hpp.
#include <cuda_runtime.h>

#include "cuda/runtime.hpp"

namespace gigabar::tool {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

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

std::string cuda_error() { return std::string(cudaGetErrorName(last_error)) + ": " + cudaGetErrorString(last_error); }

}  // namespace gigabar::tool
