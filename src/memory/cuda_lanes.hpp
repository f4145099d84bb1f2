// SPDX-License-Identifier: Apache-2.0
// Streams of the library's own for copy-engine work: one is checked out per copy, so threads do not wait for each other.
#pragma once

#if GIGABAR_HAS_CUDA

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "driver/cuda/cuda.hpp"
#include "memory/runtime.hpp"

namespace gigabar {

// All of one device. Threads: any. The device's primary context must be current in every call.
class CudaLanes {
 public:
  CudaLanes();
  ~CudaLanes();
  CudaLanes(const CudaLanes&) = delete;
  CudaLanes& operator=(const CudaLanes&) = delete;

  // Copies the pieces in one go and waits, for at most 10 s and 1 s more per 100 MB. Pieces of up to 64 bytes go through pinned
  // memory of the lane; larger ones directly. Errors: timed_out (the lane is given up; the copy may still happen), device_error.
  Result<void> copy(const cuda::Functions& functions, EngineDirection direction, std::span<const EngineCopy> pieces);

 private:
  struct Lane;
  Result<std::unique_ptr<Lane>> check_out(const cuda::Functions& functions);
  void check_in(std::unique_ptr<Lane> lane);
  void give_up(std::unique_ptr<Lane> lane);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> idle_;
  std::vector<std::unique_ptr<Lane>> given_up_;  // their memory may still be written to: never used again, never freed
};

}  // namespace gigabar

#endif
