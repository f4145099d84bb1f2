// SPDX-License-Identifier: Apache-2.0
// Copies from a GPU that a kernel makes which comes when they follow each other closely and stays for a moment
// (use_readback_kernel() in gigabar/copy.hpp says what that means for a program).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gigabar/mapping.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// How long a kernel stays, and stays without a request. Copies that follow each other within the second are close.
struct ReadbackLimits {
  std::int64_t kernel_ns = 10'000'000;
  std::int64_t idle_ns = 1'000'000;
};

// Of one device. Threads: any; one at a time asks the kernel, which nobody waits for: another one's copy is not made.
class Readback {
 public:
  // Loads the kernel and tries it. Errors: those of use_readback_kernel(). Tests choose longer limits, for busy machines.
  static Result<std::unique_ptr<Readback>> open(int device, const void* image, ReadbackLimits limits = {});
  // Waits for the kernel to end, for at most 1 s; what it uses is then kept for ever.
  virtual ~Readback() = default;

  // Copies 1 to kMaxReadbackBytes bytes of device memory if the kernel runs and is free; starts it when such copies are close.
  // False: nothing was copied, and `destination` may hold some of the bytes.
  virtual bool try_copy(std::uintptr_t source, void* destination, std::size_t bytes) = 0;
  // Starts the kernel where it does not run, and waits for it. Errors: not_supported, timed_out, device_error.
  virtual Result<void> copy(std::uintptr_t source, void* destination, std::size_t bytes) = 0;
};

// Null when this build has none.
const void* readback_kernel_image() noexcept;

// That of the device, opened by the first call that needs it and kept for the life of the process. Errors: as open().
Result<Readback*> readback_of(int device);
// That of the device if copies may use it (use_readback_kernel(), GIGABAR_READBACK_KERNEL); else null.
Readback* readback_in_use(int device) noexcept;

// Whether the readback kernel of the mapping's device is in use, was the fastest method for so many bytes when the device was
// calibrated, and has copied them. For callers that choose among the other methods themselves. The range is inside the mapping.
bool has_copied_by_readback(void* destination, const Mapping& mapping, std::size_t offset_bytes, std::size_t bytes) noexcept;

}  // namespace gigabar::inline v0
