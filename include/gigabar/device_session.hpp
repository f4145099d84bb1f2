// SPDX-License-Identifier: Apache-2.0
// What a fabric gives to kernels: segments of every rank in reach of their loads and stores, notifications in GPU memory, and the
// state of every peer, in one plain handle (gigabar/device/fabric.hpp). On a machine without a GPU the kernels are threads of the
// CPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gigabar/device/fabric.hpp"
#include "gigabar/export.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/status.hpp"

namespace gigabar {

// For which ranks kernels get queues. The segments of the others they reach by loads and stores.
enum class QueueUse : std::uint8_t {
  never,
  out_of_reach,  // those of which some segment is not reached by loads and stores
  always         // every other rank: nothing is stored there directly; for atomics where the link has none, and for tests
};

// What executes the work requests of queues. Those of an adapter have never run on hardware.
enum class QueueEngine : std::uint8_t {
  automatic,         // hca where every rank has an adapter that works, else software_hca
  hca,               // an adapter of mlx5 itself, rung by kernels
  hca_cpu_doorbell,  // the same, rung by a thread of the CPU
  software_hca       // threads of the CPU, over the fabric
};
// "automatic", "hca", "hca_cpu_doorbell", "software_hca".
GIGABAR_API std::string_view name_of(QueueEngine engine) noexcept;

// The same at every rank, but for hca_port and hca_gid_index.
struct DeviceSessionOptions {
  SegmentId segment_count = 16;                   // kernels name segments below it
  std::uint32_t notification_count = 1024;        // of each of them; 16 bytes of GPU memory each
  SegmentId control_segment = kMostSegments - 1;  // an id that the program does not use, at or above segment_count
  QueueUse queues = QueueUse::out_of_reach;
  std::uint32_t queue_count = 1;         // to each such rank, up to 16: blocks that use different ones do not wait for each other
  std::uint32_t queue_depth = 1024;      // work requests, a power of two from 8 to 32768; each takes 72 bytes of pinned host memory
  std::uint32_t proxy_thread_count = 1;  // of a software HCA, up to 12, which execute what kernels posted; each polls all the time
  QueueEngine engine = QueueEngine::automatic;
  std::string hca_port;    // of the adapter, "mlx5_0" or "mlx5_0/1"; empty: the nearest to the device that is usable
  int hca_gid_index = -1;  // of RoCE; -1: the first of version 2 that is no link-local address
  Timeout timeout = Timeout::of(std::chrono::seconds(30));  // for all ranks to come
};

// How kernels of this rank reach a segment.
struct DeviceReach {
  bool is_direct = false;  // by loads and stores
  bool has_queue = false;  // else, by work requests
  bool is_mapped = false;  // a software HCA stores up to 28 bytes there by itself, through a mapping of this process
  QueueEngine engine = QueueEngine::automatic;  // with a queue: what executes them
  std::string reason;                           // why not directly, why it is not mapped, and why not by another engine
  // Directly, but atomics are unavailable, because the link to that GPU has no native ones; empty: they are there.
  std::string why_no_atomics;
};

// Threads: one at a time; kernels use the handle meanwhile. A session keeps its fabric open, whatever becomes of the Fabric object.
// Notifications of kernels are their own: those of Fabric::notify are another set.
class DeviceSession {
 public:
  // Every rank calls it, after it has registered the segments that kernels use (ids below `segment_count`, memory of this rank's
  // device); what is registered later is not seen. Allocates and registers GPU memory for notifications, meets the others, and maps
  // what is in reach; what is not is an answer of reach(), not an error.
  // Errors: invalid_argument (an option, or the ranks' options differ), timed_out (a rank did not come), peer_lost, out_of_memory,
  // device_error, not_supported or unavailable (an engine that was asked for is not there: at every rank); nothing is kept.
  GIGABAR_API static Result<DeviceSession> open(Fabric& fabric, const DeviceSessionOptions& options = {});

  GIGABAR_API DeviceSession(DeviceSession&&) noexcept;
  GIGABAR_API DeviceSession& operator=(DeviceSession&&) noexcept;
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;
  // As close() with 10 s. What kernels still use after that is never freed; a warning says so.
  GIGABAR_API ~DeviceSession();

  // For kernels of this rank's device, by value. Good until close() or recover().
  GIGABAR_API const device::DeviceFabric& handle() const noexcept;
  // Errors: out_of_range.
  GIGABAR_API Result<DeviceReach> reach(Rank rank, SegmentId id) const;

  // After a peer was lost, or a queue to it failed, and the two ranks can connect again: connects, maps its segments anew, makes
  // new queues to it and clears its error. No kernel of this rank runs meanwhile; what they posted to an adapter and did not wait
  // for may be lost. The peer does the same, unless it was not lost and its queues are the software HCA's, each of which is one
  // rank's alone. Errors: out_of_range, invalid_argument (this rank), timed_out, peer_lost, device_error; call it again then,
  // before a kernel uses the rank.
  GIGABAR_API Outcome recover(Rank rank, Timeout timeout);

  // Waits until the device has done all work of this process, gives back what was mapped, and waits until the peers have done so
  // too. Errors: timed_out (a kernel still runs: nothing has changed, kernels may go on; or peers have not closed theirs: call
  // again), device_error.
  GIGABAR_API Outcome close(Timeout timeout);

 private:
  struct State;
  explicit DeviceSession(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar
