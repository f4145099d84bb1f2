// SPDX-License-Identifier: Apache-2.0
// The streams of one GPU, and its persistent copy kernel (persistent_copy_kernel.cpp), for copies that are started here and finish
// by themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gigabar/status.hpp"
#include "memory/copy_stream.hpp"

namespace gigabar::transport::local {

// A kernel that comes when copies follow each other closely, stays for a moment, and copies what the CPU asks it to: an H200 takes
// a request within 2 µs, where starting a copy engine or a kernel for each copy takes 8 to 10 µs. Of one device. Copies between
// device memories that this device reaches. Nothing waits for the kernel: it is asked only while all its blocks run, so that a GPU
// full of other work never holds a copy up, and it ends by itself, so that it never holds up other work for longer than 2 ms. What
// it left undone is the caller's to do again, which is safe: it touches nothing once it has ended. For builds with CUDA.
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

enum class CopyState : std::uint8_t { running, finished, failed };

// One started copy.
inline constexpr std::uint32_t kPersistentKernel = UINT32_MAX;
struct CopyTicket {
  std::uint32_t stream = 0;  // kPersistentKernel: by the persistent copy kernel
  std::uint64_t number = 0;  // of the stream's copies, or of the kernel's requests (modulo 2^32)
};

struct CopierOptions {
  std::uint64_t most_kernel_bytes = 0;           // copies of more are the copy engines'; 0: all are
  std::unique_ptr<PersistentCopyKernel> kernel;  // in place of the device's own; for tests
  std::uint32_t first_number = 0;                // of every stream and the kernel: tests choose it to see the numbers wrap
};

// All of one device, for one transport. Copies between device memories that follow each other closely and are not large are made by
// a persistent copy kernel, where it is faster, all others by copy engines. Behind each copy its stream writes the copy's number to
// a word of pinned memory, so that looking is a load; a driver that cannot do that gets events. Host memory must be pinned.
class DeviceCopier {
 public:
  // Errors: unavailable (no CUDA), device_error, ...
  static Result<std::unique_ptr<DeviceCopier>> open(int device, CopierOptions options = {});
  virtual ~DeviceCopier() = default;

  // Starts a copy on the stream with the least under way. Errors: device_error; nothing is under way then.
  virtual Result<CopyTicket> copy(CopyWay way, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) = 0;
  // failed: the driver lost the stream; failure() says how. Copies of a lost stream do not go on.
  virtual CopyState look(CopyTicket ticket) = 0;
  virtual Error failure() const = 0;
  // Asks the driver now and then whether streams that are at work are still sound. Call it in every poll.
  virtual void check() = 0;
  virtual bool is_idle() = 0;
};

}  // namespace gigabar::transport::local
