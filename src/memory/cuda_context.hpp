// SPDX-License-Identifier: Apache-2.0
// A device's primary context, and the guard that makes it current for a while.
#pragma once

#if GIGABAR_HAS_CUDA

#include <utility>

#include "driver/cuda/cuda.hpp"

namespace gigabar::inline v0 {

// Makes `context` current for this scope and lets this thread call the driver while another one captures a stream; both are
// restored at the end. Must be destroyed on the thread that made it.
class ContextGuard {
 public:
  ContextGuard(const cuda::Functions& functions, CUcontext context) noexcept;
  ContextGuard(ContextGuard&& other) noexcept
      : functions_(std::exchange(other.functions_, nullptr)), capture_mode_(other.capture_mode_), result_(other.result_) {}
  ~ContextGuard();

  CUresult result() const noexcept { return result_; }

 private:
  const cuda::Functions* functions_;  // null after a move
  CUstreamCaptureMode capture_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult result_;
};

// The device's primary context, retained for the life of the process. Errors: as devices(); invalid_argument. Threads: any.
Result<CUcontext> primary_context(int device);

}  // namespace gigabar::inline v0

#endif
