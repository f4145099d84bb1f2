// SPDX-License-Identifier: Apache-2.0
// The queues of a session to ranks that its kernels do not reach by loads and stores, whatever executes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/in_place.hpp"
#include "device/fabric_wire/fabric_wire.hpp"
#include "device/session/control_memory.hpp"
#include "gigabar/device/fabric.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// A segment of a peer.
struct RemoteBytes {
  SegmentId id = 0;
  std::uint64_t bytes = 0;
};

// For one thread at a time.
class SessionQueues : InPlace {
 public:
  virtual ~SessionQueues() = default;

  virtual QueueEngine engine() const noexcept = 0;
  // "mlx5_0/1"; behind it why the CPU rings, if it was not asked to. Empty for the software HCA.
  virtual std::string describe() const { return {}; }
  // The key in work requests of a segment of this rank, which is where kernels know it. All of them before the first connect().
  // Errors: out_of_memory, not_supported, device_error, timed_out.
  virtual Result<std::uint32_t> add_segment(const soft_hca::FabricRange& segment) = 0;
  // New queues to the rank, which does the same, in place of those it had, which no kernel uses. `segments`: all that the rank has,
  // the control segment last. Errors: out_of_memory, device_error, timed_out, not_supported.
  virtual Result<void> connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) = 0;
  // Before connect() takes their place: waits until what kernels posted to the rank is done or has failed, where this side does it.
  // Errors: timed_out.
  virtual Result<void> finish([[maybe_unused]] Rank rank, [[maybe_unused]] const Timeout& timeout) { return {}; }
  // Tells a rank that waits, or will wait, for this side's connect() that it does not come, where the rank would miss it.
  virtual void refuse([[maybe_unused]] Rank rank) {}
  // Where a segment of a connected rank begins, in work requests.
  virtual device::Remote place(Rank rank, SegmentId id) const = 0;
  // Gives back what was mapped of the rank, between stop() and start().
  virtual void leave(Rank rank) noexcept = 0;
  virtual bool has(Rank rank) const noexcept = 0;
  // Empty: small writes to the segment are stored through a mapping of this process; else why not.
  virtual std::string why_not_mapped(Rank rank, SegmentId id) const = 0;
  // The threads of the CPU, if there are queues that need some. Errors: out_of_memory.
  virtual Result<void> start() = 0;
  virtual void stop() noexcept = 0;
  // Waits until what kernels posted is done or handed on, with no kernel running, and until peers have come as far where they would
  // miss this side. Errors: timed_out (call again), device_error.
  virtual Result<void> drain(const Timeout& timeout) = 0;
};

// All three must outlive the queues. Errors: those of hca::Hca::open and of registering the control segment.
Result<std::unique_ptr<SessionQueues>> open_hca_queues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options);
std::unique_ptr<SessionQueues> make_soft_queues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options);

// Errors: invalid_argument, which names the option.
Result<void> check_options(const DeviceSessionOptions& options);

}  // namespace gigabar::inline v0
