// SPDX-License-Identifier: Apache-2.0
// Queues with a software HCA behind the doorbells: rings in pinned host memory, CQs in device memory, and a wire over the fabric
// for each queue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/fabric_wire/fabric_wire.hpp"
#include "device/session/control_memory.hpp"
#include "device/session/session_queues.hpp"
#include "device/soft_hca/proxy_threads.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::inline v0 {

// The proxies run beside the calling thread.
class SoftQueues final : public SessionQueues {
 public:
  // All three must outlive it.
  SoftQueues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options);
  // Ends the proxies first.
  ~SoftQueues() override;

  QueueEngine engine() const noexcept override { return QueueEngine::software_hca; }
  Result<std::uint32_t> add_segment(const OwnSegment& segment) override;
  Result<void> connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) override;
  device::Remote place(Rank rank, SegmentId id) const override;
  void leave(Rank rank) noexcept override;
  Result<void> finish(Rank rank, const Timeout& timeout) override;
  bool is_empty() const noexcept override { return ranks_.empty(); }
  bool has(Rank rank) const noexcept override { return ranks_.contains(rank); }
  std::string why_not_mapped(Rank rank, SegmentId id) const override;
  Result<void> start() override;
  void stop() noexcept override { proxies_.reset(); }
  Result<void> drain(const Timeout& timeout) override;

 private:
  struct PeerEnd {
    HostMemory memory;  // ring, results, record, doorbell, CQE
    std::unique_ptr<soft_hca::FabricWire> wire;
    std::uint32_t number = 0;
    std::uint32_t results_key = 0;
  };
  // What small writes to a rank are stored to directly.
  struct MappedRank {
    std::vector<soft_hca::FabricRange> segments;
    std::map<SegmentId, std::string> why_not;
  };
  template <class IsDone>
  Result<void> await(const char* operation, const Timeout& timeout, const IsDone& is_done);
  // Moves bytes between scratch memory and each of the rank's segments, both ways: what a path allocates or loads at its first use
  // would wait for kernels that run. Errors: those of the operations.
  Result<void> warm_up(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);
  Result<PeerEnd> make_end(Rank rank, std::uint32_t index, device::PeerQueue& queue);
  void drop(std::vector<PeerEnd>& ends);
  void map_segments(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);

  Fabric& fabric_;
  ControlMemory& memory_;
  const DeviceSessionOptions& options_;
  std::vector<soft_hca::FabricRange> local_;
  std::map<Rank, std::vector<PeerEnd>> ranks_;
  std::map<Rank, MappedRank> mapped_;
  std::vector<std::vector<PeerEnd>> dropped_;  // what their wires began may still land
  soft_hca::SoftHca hca_;                      // behind the wires: destroyed before them
  std::unique_ptr<soft_hca::ProxyThreads> proxies_;
};

}  // namespace gigabar::inline v0
