// SPDX-License-Identifier: Apache-2.0
// Streams of one GPU for copies that are started here and finish by themselves.
#pragma once

#include <cstdint>
#include <memory>

#include "gigabar/status.hpp"
#include "transport/local/persistent_copy_kernel.hpp"

namespace gigabar::transport::local {

enum class CopyKind : std::uint8_t { device_to_device, host_to_device, device_to_host };
enum class CopyState : std::uint8_t { running, finished, failed };

// One started copy.
inline constexpr std::uint32_t kPersistentKernel = UINT32_MAX;
struct CopyTicket {
  std::uint32_t lane = 0;    // kPersistentKernel: by the persistent copy kernel
  std::uint32_t number = 0;  // of the lane, modulo 2^32
};

struct LaneOptions {
  std::uint64_t most_kernel_bytes = 0;           // copies of more are the copy engines'; 0: all are
  std::unique_ptr<PersistentCopyKernel> kernel;  // in place of the device's own; for tests
  std::uint32_t first_number = 0;                // of every lane: tests choose it to see the numbers wrap
};

// All of one device, for one transport. Copies between device memories that follow each other closely and are not large are made by
// a persistent copy kernel, where it is faster, all others by copy engines. Behind each copy its stream writes the copy's number to
// a word of pinned memory, so that looking is a load; a driver that cannot do that gets events. Host memory must be pinned.
class CopyLanes {
 public:
  // Errors: unavailable (no CUDA), device_error, ...
  static Result<std::unique_ptr<CopyLanes>> open(int device, LaneOptions options = {});
  virtual ~CopyLanes() = default;

  // Starts a copy on the lane with the least under way. Errors: device_error; nothing is under way then.
  virtual Result<CopyTicket> copy(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) = 0;
  // failed: the driver lost the lane; failure() says how. Copies of a lost lane do not go on.
  virtual CopyState look(CopyTicket ticket) = 0;
  virtual Error failure() const = 0;
  // Asks the driver now and then whether lanes that are at work are still sound. Call it in every poll.
  virtual void check() = 0;
  virtual bool is_idle() = 0;
};

}  // namespace gigabar::transport::local
