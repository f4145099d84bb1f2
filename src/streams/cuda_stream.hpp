// SPDX-License-Identifier: Apache-2.0
// What streams have of CUDA: GPUs, and transfers as CUDA streams.
#pragma once

#if GIGABAR_HAS_CUDA

#include <memory>
#include <optional>
#include <string>

#include "base/in_place.hpp"
#include "driver/cuda/cuda.hpp"
#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"
#include "streams/ends.hpp"
#include "streams/repeat.hpp"

namespace gigabar::inline v0 {

// One GPU: its context, its kernels, its clock. Defined in cuda_device.cpp.
class StreamDevice : InPlace {
 public:
  // `needs_kernels`: a failure to load them is an error.
  static Result<std::unique_ptr<StreamDevice>> open(const DeviceInfo& info, bool needs_kernels);
  ~StreamDevice();

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

// What of a transfer stays the same over all repeats.
struct CudaTransfer {
  std::size_t index;
  const Transfer* transfer;
  StreamDevice* device;           // does the work
  StreamDevice* other = nullptr;  // the GPU at the other end, when that is another one
  bool uses_peer_access = false;
  std::unique_ptr<CudaCopyStream> stream;

  bool waits_for_each_copy() const noexcept;  // by a thread of its own; the rest is submitted ahead by the GPU's thread
};

// Starts one copy of the transfer's first `bytes` bytes. The device's context must be current.
CUresult start_copy(const CudaTransfer& transfer, const Ends& ends, std::size_t bytes);

// A stream during one repeat: copies submitted ahead of time behind the gate, marks taken from the points behind them. Used by one
// thread, with the device's context current.
class CudaStream {
 public:
  // `is_alone`: no other transfer is carried by the same GPU.
  CudaStream(CudaTransfer& transfer, const Ends& ends, TransferRun& run, Repeat& repeat, bool is_alone);

  // Before the gate: puts the wait for it, the warm-up and as many copies as may be ahead into the stream.
  void prepare();
  // Takes what has ended and submits what may follow. True when it did either.
  bool advance();
  bool is_finished() const noexcept { return is_finished_; }
  void give_up();

 private:
  void begin();
  bool reap();
  bool submit();
  bool record();
  std::uint64_t begun() const noexcept { return stream_.started() - first_number_; }
  void fail(const char* operation, CUresult result);
  void finish();

  const CudaTransfer& transfer_;
  CudaCopyStream& stream_;
  const Ends& ends_;
  TransferRun& run_;
  Repeat& repeat_;
  const bool takes_turns_;  // lets its queue run empty between rounds, see kMaxPendingOfTurn
  const std::uint64_t copies_per_mark_;
  const std::size_t most_pending_;
  std::uint64_t first_number_ = 0;  // of the stream's copies: what came before the begin
  bool has_begun_ = false;
  bool is_finished_ = false;
};

}  // namespace gigabar::inline v0

#endif
