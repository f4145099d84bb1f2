// SPDX-License-Identifier: Apache-2.0
// The streams of one GPU, and its persistent copy kernel, for copies that are started here and finish by themselves.
#pragma once

#include <cstdint>
#include <memory>

#include "gigabar/status.hpp"
#include "memory/copy_stream.hpp"
#include "transport/local/persistent_copy_kernel.hpp"

namespace gigabar::transport::local {

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
