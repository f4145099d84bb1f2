// SPDX-License-Identifier: Apache-2.0
// A kernel that comes when copies follow each other closely, stays for a moment, and copies what the CPU asks it to: an H200 takes
// a request within 2 µs, where starting a copy engine or a kernel for each copy takes 8 to 10 µs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::transport::local {

// Of one device. Copies between device memories that this device reaches. Nothing waits for the kernel: it is asked only while all
// its blocks run, so that a GPU full of other work never holds a copy up, and it ends by itself, so that it never holds up other
// work for longer than 2 ms. What it left undone is the caller's to do again, which is safe: it touches nothing once it has ended.
class PersistentCopyKernel {
 public:
  enum class State : std::uint8_t { running, finished, abandoned };

  // Errors: unavailable (no device code in this build, no mapping of GPU memory, an old driver), device_error, as map().
  static Result<std::unique_ptr<PersistentCopyKernel>> open(int device, std::uint32_t first_number);
  // Waits for the kernel to end, for at most 1 s; what it uses is then kept for ever.
  virtual ~PersistentCopyKernel() = default;

  // The number of the request; none when the kernel is not there or has enough to do. Addresses must differ by a multiple of 16.
  virtual std::optional<std::uint32_t> post(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) = 0;
  // Tells of a copy that another engine has just begun: the kernel is started when they follow each other closely. Requests before
  // it must have been looked at until they were over.
  virtual void note_copy() = 0;
  // abandoned: the kernel has ended without it.
  virtual State look(std::uint32_t number) = 0;
  // ok, or how the device was lost; asks the driver.
  virtual Result<void> check() = 0;
};

// Null when this build has none.
const void* copy_kernel_image() noexcept;

}  // namespace gigabar::transport::local
