// SPDX-License-Identifier: Apache-2.0
// One GPU as streams use it: its context, its kernels, its clock.
#pragma once

#if GIGABAR_HAS_CUDA

#include <memory>
#include <optional>
#include <string>

#include "driver/cuda/cuda.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"

namespace gigabar::inline v0 {

class StreamDevice {
 public:
  // `needs_kernels`: a failure to load them is an error.
  static Result<std::unique_ptr<StreamDevice>> open(const DeviceInfo& info, bool needs_kernels);
  ~StreamDevice();
  StreamDevice(const StreamDevice&) = delete;
  StreamDevice& operator=(const StreamDevice&) = delete;

  struct Kernels {
    CUfunction copy = nullptr;
    CUfunction fill = nullptr;
    CUfunction check = nullptr;
    CUfunction echo = nullptr;
    CUfunction chase = nullptr;
  };

  ContextGuard enter() const { return ContextGuard(functions, context); }
  bool has_kernels() const noexcept { return kernels.copy != nullptr; }
  // The parameters' types must be exactly those of the kernel.
  template <class... Parameters>
  CUresult launch(CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream, Parameters... parameters) const {
    void* addresses[] = {static_cast<void*>(&parameters)...};
    return functions.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, addresses, nullptr);
  }
  // Waits for all that one of its streams was given. Errors: timed_out, device_error.
  Result<void> wait(CudaCopyStream& stream, double seconds, const char* operation) const;

  // Relates the device's clock to the CPU's: an event whose moment on the CPU's clock is known to a few microseconds.
  Result<void> read_clock();
  // The moment of an event that has happened, on the CPU's clock.
  CUresult moment_of(CUevent event, std::int64_t& at_ns) const;

  const cuda::Functions& functions;
  const int index;
  const int numa_node;
  CUcontext context = nullptr;
  CUdevice handle = 0;
  int multiprocessor_count = 1;
  Kernels kernels;
  std::string no_kernels_reason;
  const char* no_kernels_remedy = "build with nvcc for this GPU's architecture (CMAKE_CUDA_ARCHITECTURES), or use the copy engine";
  CudaCopyStream own_stream;
  std::optional<DeviceMemory> scratch;  // one page, for results of kernels

 private:
  StreamDevice(const cuda::Functions& all, const DeviceInfo& info) : functions(all), index(info.index), numa_node(info.numa_node) {}
  CUresult load_kernels();
  CUresult load_code();
  bool do_launches_wait();

  CUmodule module_ = nullptr;
  CUevent clock_event_ = nullptr;
  CUevent spare_event_ = nullptr;
  std::int64_t clock_ns_ = 0;
};

}  // namespace gigabar::inline v0

#endif
