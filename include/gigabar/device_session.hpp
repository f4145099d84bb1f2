// SPDX-License-Identifier: Apache-2.0
// A fabric for kernels: the load/store accessible segments of every rank, notifications in GPU memory, and the state of every peer,
// in one plain handle (gigabar/device/fabric.hpp). On a machine without a GPU the kernels are threads of the CPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/device/fabric.hpp"
#include "gigabar/export.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// The ranks for which kernels get queues. Kernels access the segments of other ranks by loads and stores.
enum class QueueUse : std::uint8_t {
  never,
  out_of_reach,  // ranks with a segment that is not load/store accessible
  always         // every other rank: nothing is stored there directly; for atomics where the link has none, and for tests
};

// What executes the work requests of queues. The engines of an adapter have never run on hardware.
enum class QueueEngine : std::uint8_t {
  automatic,         // hca where every rank has an adapter that works, else software_hca
  hca,               // an mlx5 adapter; kernels ring its doorbell
  hca_cpu_doorbell,  // an mlx5 adapter; a thread of the CPU rings its doorbell
  software_hca       // threads of the CPU, over the fabric
};
// "automatic", "hca", "hca_cpu_doorbell", "software_hca".
GIGABAR_API std::string_view name_of(QueueEngine engine) noexcept;

// The same at every rank, except hca_port and hca_gid_index.
struct DeviceSessionOptions {
  SegmentId segment_count = 16;             // kernels use segments with ids below it
  std::vector<SegmentId> segments;          // only these of them, ascending; empty: all
  std::uint32_t notification_count = 1024;  // of each segment; each takes 16 bytes of GPU memory
  // Segments whose notifications the CPU of their owner takes, ascending: by Fabric::notification_wait, not in kernels. The others'
  // are taken by kernels, not by the CPU. Both raise both; see DeviceSession::notify.
  std::vector<SegmentId> cpu_segments;
  SegmentId control_segment = kMaxSegments - 1;  // an id that the program does not use; at least segment_count
  QueueUse queues = QueueUse::out_of_reach;
  std::uint32_t queue_count = 1;         // to each such rank, up to 16: blocks that use different queues do not wait for each other
  std::uint32_t queue_depth = 1024;      // work requests, a power of two from 8 to 32768; each takes 72 bytes of pinned host memory
  std::uint32_t proxy_thread_count = 1;  // of a software HCA, up to 12: they execute the kernels' posts; each polls all the time
  QueueEngine engine = QueueEngine::automatic;
  std::string hca_port;    // the adapter's, "mlx5_0" or "mlx5_0/1"; empty: the usable one nearest to the device
  int hca_gid_index = -1;  // for RoCE; -1: the first of version 2 that is not a link-local address
  // Rings of messages (gigabar/device/message.hpp) to and from each rank, up to 1024; 0: none. Each takes ring_bytes of GPU memory
  // per rank, a power of two from 64 to 2^30; three quarters of that are data, and a message of up to half a ring is sent at once.
  std::uint32_t ring_count = 0;
  std::uint32_t ring_bytes = 262144;
  Timeout timeout = Timeout::of(std::chrono::seconds(30));  // for all ranks to arrive
};

// How kernels of this rank access a segment.
struct DeviceReach {
  bool is_direct = false;  // by loads and stores
  bool has_queue = false;  // otherwise: by work requests
  bool is_mapped = false;  // a software HCA itself stores up to 28 bytes there, through a mapping of this process
  QueueEngine engine = QueueEngine::automatic;  // with a queue: what executes the work requests
  std::string reason;                           // why not directly, why it is not mapped, and why not by another engine
  // Why atomics are unavailable although access is direct: the link to that GPU has no native atomics. Empty: they are available.
  std::string why_no_atomics;
};

// Threads: one at a time; kernels may use the handle meanwhile. A session keeps its fabric open, even when the Fabric object is
// destroyed.
//
// A notification is taken where it lies, because the reset of a GPU is atomic in the GPU's memory only, and that of a CPU in the
// host's (x86 with PCI Express). So each segment has one set for each taker, and the session says which of them is in use: that in
// GPU memory, or for cpu_segments that of Fabric::notify. Kernels raise the latter by a queue of the software HCA, which the
// session makes to every rank, this one included. Fabric::notify raises no notification that kernels take: DeviceSession::notify
// does.
class DeviceSession {
 public:
  // Every rank calls it, after it has registered the segments that kernels use (ids below `segment_count`, memory of this rank's
  // device). Kernels do not see segments that are registered later. It allocates and registers GPU memory for notifications, waits
  // for the other ranks, and maps the load/store accessible segments; reach() reports the others, which are not an error.
  // Errors: invalid_argument (an option, or the ranks' options differ), timed_out (a rank did not arrive), peer_lost,
  // out_of_memory, device_error, not_supported or unavailable (a requested engine is not available: at every rank); nothing is
  // kept. With cpu_segments the engine is the software HCA.
  GIGABAR_API static Result<DeviceSession> open(Fabric& fabric, const DeviceSessionOptions& options = {});

  GIGABAR_API DeviceSession(DeviceSession&&) noexcept;
  GIGABAR_API DeviceSession& operator=(DeviceSession&&) noexcept;
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;
  // As close() with 10 s. Memory that kernels still use after that is never freed; a warning says so.
  GIGABAR_API ~DeviceSession();

  // For kernels of this rank's device, passed by value. Valid until close() or recover().
  GIGABAR_API const device::DeviceFabric& handle() const noexcept;
  // Errors: out_of_range.
  GIGABAR_API Result<DeviceReach> reach(Rank rank, SegmentId id) const;

  // Post, from the CPU, what kernels post by the functions of the same name: the notification is raised where the segment's taker
  // waits, a kernel or a CPU, after the data of every earlier write of the same queue to the same rank. A kernel that takes it also
  // sees that data, while it runs. Fabric::wait waits for them; write_notify to a kernel counts as two operations of the queue.
  // Errors: invalid_argument (value 0), out_of_range (no such rank, segment of the session or notification), unavailable (the
  // session is closed), and as Fabric::write_notify. Threads: any.
  GIGABAR_API Result<Operation> notify(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value,
                                       const PostOptions& options = {});
  GIGABAR_API Result<Operation> write_notify(LocalPlace local, RemotePlace remote, std::uint64_t bytes, NotificationId id,
                                             std::uint32_t value, const PostOptions& options = {});

  // Recovers after a peer was lost, or a queue to it failed, when the two ranks can connect again: connects, maps its segments
  // again, makes new queues to it and clears its error. No kernel of this rank may run meanwhile. Operations that kernels posted to
  // an adapter and did not wait for may be lost. The peer calls recover too, unless it was not lost and its queues belong to the
  // software HCA, where each queue belongs to one rank alone. Errors: out_of_range, invalid_argument (this rank), timed_out,
  // peer_lost, device_error; then call it again before a kernel uses the rank.
  GIGABAR_API Result<void> recover(Rank rank, Timeout timeout);

  // Waits until the device has finished all work of this process, unmaps the segments, and waits until the peers have done the
  // same. Errors: timed_out (a kernel still runs: nothing has changed and kernels may continue; or peers have not closed their
  // sessions: call again), device_error.
  GIGABAR_API Result<void> close(Timeout timeout);

 private:
  struct State;
  explicit DeviceSession(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar::inline v0
