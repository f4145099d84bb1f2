// SPDX-License-Identifier: Apache-2.0
// A kernel of scopes, launched and awaited.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device_ranks/unit.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks::gpu {

inline Error failure(const char* operation, cudaError_t code) {
  return Error({.status = code == cudaErrorMemoryAllocation ? Status::out_of_memory : Status::device_error,
                .operation = operation,
                .object = "kernel",
                .native = {NativeDomain::cuda_driver, code, cudaGetErrorName(code)},
                .cause = cudaGetErrorString(code),
                .remedy = {}});
}
inline Error no_room(std::string object, std::string cause, std::string remedy) {
  return Error({.status = Status::invalid_argument,
                .operation = "start kernel",
                .object = std::move(object),
                .native = {},
                .cause = std::move(cause),
                .remedy = std::move(remedy)});
}

template <ScopeKind Kind, class Body>
__global__ void __launch_bounds__(kMaxBlockThreads, 1) units_of(const __grid_constant__ Body body) {
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if constexpr (Kind == ScopeKind::thread) body(device::Thread{}, thread);
  if constexpr (Kind == ScopeKind::warp) body(device::Warp{}, thread / kWarpThreads);
  if constexpr (Kind == ScopeKind::block) body(device::Block{}, blockIdx.x);
  if constexpr (Kind == ScopeKind::blocks) body.run_block(device::Block{}, gridDim.x, blockIdx.x);
}

// Units wait for their partners', so that all blocks must be on the device at once: one that is not would never answer. Those of
// one turn wait for nobody; with the same grid, they are never more than those of all turns.
template <class Body>
Result<void> check_room(int device, void (*kernel)(Body), const Grid& grid, std::size_t shared_bytes) {
  if (shared_bytes != 0 &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)) != cudaSuccess) {
    cudaGetLastError();  // takes it back
    return no_room(std::to_string(shared_bytes) + " bytes of shared memory",
                   "a block of this device has less; matrix and batch of a block do not fit",
                   "use smaller vectors (-m) or batches (-b)");  // matvec's: no other kernel asks for any
  }
  int processors = 0, per_processor = 0;
  cudaError_t code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (code == cudaSuccess) {
    code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, static_cast<int>(grid.threads_per_block),
                                                         shared_bytes);
  }
  if (code != cudaSuccess) return failure("ask for the device's room", code);
  const auto room = static_cast<std::uint32_t>(processors * per_processor);
  if (grid.block_count <= room) return {};
  return no_room(std::to_string(grid.block_count) + " blocks of " + std::to_string(grid.threads_per_block) + " threads",
                 "the device holds " + std::to_string(room) + " of them at once and each must answer",
                 "use fewer --blocks or --threads");
}

template <class Body>
auto kernel_of(ScopeKind scope) -> void (*)(Body) {
  if constexpr (TakesBlocks<Body>) {
    if (scope == ScopeKind::blocks) return units_of<ScopeKind::blocks, Body>;
  }
  if (scope == ScopeKind::thread) return units_of<ScopeKind::thread, Body>;
  return scope == ScopeKind::warp ? units_of<ScopeKind::warp, Body> : units_of<ScopeKind::block, Body>;
}

// A kernel of units that report, with a stream of its own, an end of each unit, and samples.
template <class Body>
class Launch {
 public:
  Launch(void (*kernel)(Body), const Grid& grid, std::size_t sample_count, std::size_t shared_bytes)
      : kernel_(kernel), grid_(grid), sample_count_(sample_count), shared_bytes_(shared_bytes) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() {
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaFree(samples_);
    cudaFree(ends_);
  }
  // Where there is room for all blocks.
  Result<void> open(int device) {
    cudaError_t code = cudaSetDevice(device);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = allocate(samples_, sample_count_);
    if (code == cudaSuccess) code = allocate(ends_, grid_.unit_count());
    // The zeroes, before a stream that does not wait for them.
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    return code == cudaSuccess ? check_room(device, kernel_, grid_, shared_bytes_) : failure("prepare kernel", code);
  }
  void start(Body body) {
    body.ends = ends_;
    if constexpr (requires { body.samples; }) body.samples = samples_;
    kernel_<<<grid_.block_count, grid_.threads_per_block, shared_bytes_, stream_>>>(body);
  }
  cudaStream_t stream() const noexcept { return stream_; }

  // Waits for the kernel that this thread has just started.
  Result<void> wait() {
    cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
    return code == cudaSuccess ? Result<void>() : Result<void>(failure("run kernel", code));
  }
  Result<KernelRun> read() {
    KernelRun run;
    cudaError_t code = fetch(ends_, grid_.unit_count(), run.ends);
    if (code == cudaSuccess) code = fetch(samples_, sample_count_, run.samples);
    if (code != cudaSuccess) return failure("read kernel's report", code);
    return run;
  }

 private:
  // Room for so many values, zeroed.
  template <class T>
  static cudaError_t allocate(T*& place, std::size_t count) {
    const std::size_t bytes = (count > 0 ? count : 1) * sizeof(T);
    const cudaError_t code = cudaMalloc(&place, bytes);
    return code == cudaSuccess ? cudaMemset(place, 0, bytes) : code;
  }
  template <class T>
  static cudaError_t fetch(const T* place, std::size_t count, std::vector<T>& values) {
    values.resize(count);
    return count == 0 ? cudaSuccess : cudaMemcpy(values.data(), place, count * sizeof(T), cudaMemcpyDeviceToHost);
  }

  void (*const kernel_)(Body);
  const Grid grid_;
  const std::size_t sample_count_, shared_bytes_;
  cudaStream_t stream_ = nullptr;
  std::uint64_t* samples_ = nullptr;
  UnitEnd* ends_ = nullptr;
};

template <class Body>
Result<RepeatedKernel<Body>> open_repeated(int device, const Grid& grid, std::uint64_t fast_bytes) {
  const auto launch = std::make_shared<Launch<Body>>(kernel_of<Body>(grid.scope), grid, 0, fast_bytes);
  if (Result<void> opened = launch->open(device); !opened) return std::move(opened).error();
  return RepeatedKernel<Body>{[launch](Body body) {
                                launch->start(body);
                                return launch->wait();
                              },
                              [launch] { return launch->read(); }};
}

// Starts a kernel that reports, and returns what waits for its end. `body` has yet to be told where it reports.
template <class Body>
Result<AwaitKernel> start_reporting(int device, const Grid& grid, Body body, std::size_t sample_count, void (*kernel)(Body)) {
  const auto launch = std::make_shared<Launch<Body>>(kernel, grid, sample_count, 0);
  if (Result<void> opened = launch->open(device); !opened) return std::move(opened).error();
  launch->start(body);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return failure("launch kernel", code);
  cudaStreamQuery(launch->stream());  // hands the launch to the device now
  return AwaitKernel([launch]() -> Result<KernelRun> {
    if (Result<void> ended = launch->wait(); !ended) return std::move(ended).error();
    return launch->read();
  });
}

template <class Body>
Result<KernelRun> run_reporting(int device, const Grid& grid, Body body) {
  const std::size_t sample_count = std::size_t{grid.unit_count()} * body.plan.sample_count();
  auto started = start_reporting(device, grid, body, sample_count, kernel_of<Body>(grid.scope));
  if (!started) return std::move(started).error();
  return (*started)();
}

}  // namespace gigabar::tool::device_ranks::gpu
