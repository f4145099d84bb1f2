// SPDX-License-Identifier: Apache-2.0
// Copies between host memory and one device that go on while the caller does something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

enum class CopyWay : std::uint8_t { to_device, from_device, between_devices };  // or within one

// Copies in the order in which they are posted, each with a point behind it that can be asked for. For one thread at a time; the
// device's context need not be current. Code that is CUDA's anyway and keeps the context current uses CudaCopyStream itself.
class CopyStream {
 public:
  // On a stand-in, or for host memory (`device` -1), copies are done when post() returns.
  // Errors: invalid_argument (no such device), device_error.
  static Result<std::unique_ptr<CopyStream>> open(int device);
  // Waits for what was posted, at most 10 s; what is still under way then is left to itself, with its resources.
  virtual ~CopyStream() = default;

  // Starts to copy; `destination` and `source` are addresses of the kinds that `way` says, alive until the copy is done. Returns
  // the number of the point behind it, which counts up from 1. Errors: device_error, out_of_memory.
  virtual Result<std::uint64_t> post(CopyWay way, void* destination, const void* source, std::size_t bytes) = 0;
  // The last point that was passed: all copies up to it are done. Errors: device_error, for good.
  virtual Result<std::uint64_t> done() = 0;
};

}  // namespace gigabar::inline v0
