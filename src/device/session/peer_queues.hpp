// The queues of a session: rings in pinned host memory, CQs in device memory, a software HCA behind the doorbells, and a wire over
// the fabric for each queue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/fabric_wire/fabric_wire.hpp"
#include "device/session/control_memory.hpp"
#include "device/soft_hca/proxy_threads.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"

namespace gigabar {

// A segment of this rank that work requests name.
struct OwnSegment {
  SegmentId id = 0;
  std::byte* address = nullptr;  // as kernels know it
  std::uint64_t bytes = 0;
};

struct PeerQueueOptions {
  std::uint32_t depth = 0;
  std::uint32_t proxy_thread_count = 0;
  SegmentId control_segment = 0;
};

// For one thread at a time; the proxies run beside it.
class PeerQueues {
 public:
  // `fabric` and `memory` must outlive it.
  PeerQueues(Fabric& fabric, ControlMemory& memory, const PeerQueueOptions& options);
  // Ends the proxies first.
  ~PeerQueues();
  PeerQueues(const PeerQueues&) = delete;
  PeerQueues& operator=(const PeerQueues&) = delete;

  // The key of work requests for it. Errors: out_of_memory.
  Result<std::uint32_t> add_segment(const OwnSegment& segment);
  // A segment of a peer.
  struct RemoteBytes {
    SegmentId id = 0;
    std::uint64_t bytes = 0;
  };
  // New queues to the rank, in place of those it had, which no kernel uses. Errors: out_of_memory, device_error, timed_out.
  Outcome connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);
  // Gives back what was mapped of the rank, with no proxy running.
  void leave(Rank rank) noexcept;
  // Moves bytes between scratch memory and each of the rank's segments, both ways: what a path allocates or loads at its first use
  // would wait for kernels that run. Errors: those of the operations.
  Outcome warm_up(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);
  bool is_empty() const noexcept { return ranks_.empty(); }
  bool has(Rank rank) const noexcept { return ranks_.contains(rank); }
  // Empty: small writes to the segment are stored through a mapping of this process; else why not.
  std::string why_not_mapped(Rank rank, SegmentId id) const;
  // Errors: out_of_memory (threads).
  Outcome start();
  void stop() noexcept { proxies_.reset(); }
  // Waits until what kernels posted was handed to the fabric, with no kernel running. Errors: timed_out.
  Outcome drain(const Timeout& timeout);

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
  Result<PeerEnd> make_end(Rank rank, std::uint32_t index, device::PeerQueue& queue);
  void drop(std::vector<PeerEnd>& ends);
  void map_segments(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout);

  Fabric& fabric_;
  ControlMemory& memory_;
  const PeerQueueOptions options_;
  std::vector<soft_hca::FabricRange> local_;
  std::map<Rank, std::vector<PeerEnd>> ranks_;
  std::map<Rank, MappedRank> mapped_;
  std::vector<std::vector<PeerEnd>> dropped_;  // what their wires began may still land
  soft_hca::SoftHca hca_;                      // behind the wires: destroyed before them
  std::unique_ptr<soft_hca::ProxyThreads> proxies_;
};

}  // namespace gigabar
