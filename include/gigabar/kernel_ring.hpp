// SPDX-License-Identifier: Apache-2.0
// Messages between the CPU and a kernel that runs, and calls of the CPU to a kernel that stays. The functions of both ends are
// those of gigabar/device/message.hpp; on a machine without a GPU the kernel is a thread of the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "gigabar/device/message.hpp"
#include "gigabar/export.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

struct KernelRingOptions {
  std::uint32_t ring_bytes = 65536;  // of each direction, a power of two from 64 to 2^30; half of that are data
};

// A ring to kernels of a device, in its memory, which the CPU writes through a mapping; and one back, in pinned host memory. Each
// end belongs to one thread of the CPU, or one scope of kernels, at a time.
class KernelRing {
 public:
  // Errors: invalid_argument (ring_bytes, no such device), and those of DeviceMemory::allocate, HostMemory::allocate and map().
  // Cost: allocates, maps; enters the kernel.
  GIGABAR_API static Result<KernelRing> open(int device, const KernelRingOptions& options = {});

  GIGABAR_API KernelRing(KernelRing&&) noexcept;
  GIGABAR_API KernelRing& operator=(KernelRing&&) noexcept;
  KernelRing(const KernelRing&) = delete;
  KernelRing& operator=(const KernelRing&) = delete;
  // No kernel may use the ends any more.
  GIGABAR_API ~KernelRing();

  // For kernels, which open them: device::CpuRecvRing::open(*from_cpu) and device::CpuSendRing::open(*to_cpu). Device memory.
  GIGABAR_API device::RingEnd* from_cpu() const noexcept;
  GIGABAR_API device::RingEnd* to_cpu() const noexcept;

  // Of the CPU, open, for device::send, device::recv and the like with the scope device::Thread.
  GIGABAR_API device::CpuSendRing& to_kernel() noexcept;
  GIGABAR_API device::CpuRecvRing& from_kernel() noexcept;

  // Sends `arguments` and receives the answer, whose size it returns. The kernel answers each message by one message.
  // Errors: timed_out (the next call drops the late answer), out_of_range (the answer is longer than `capacity`, or the arguments
  // than a message; the answer is dropped), invalid_argument (a call that timed out has sent a part of other arguments, longer than
  // half the ring's data: repeat that one). Each piece of such arguments, and of such an answer, may take the whole time.
  GIGABAR_API Result<std::uint64_t> call(const void* arguments, std::uint64_t bytes, void* answer, std::uint64_t capacity,
                                         Timeout timeout);

  // Kernels that wait for a message, or for room, get peer_lost when they have received what was sent before.
  GIGABAR_API void stop() noexcept;

 private:
  struct State;
  explicit KernelRing(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar::inline v0
