// SPDX-License-Identifier: Apache-2.0
// Queues of an adapter of mlx5, on which nothing of the CPU executes anything. Ranks tell each other of their adapters through
// their control segments.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/hca/hca.hpp"
#include "device/hca/hca_queue.hpp"
#include "device/session/control_memory.hpp"
#include "device/session/session_queues.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"

namespace gigabar::inline v0 {

// For one thread at a time; beside it runs one that rings for kernels which may not.
class HcaQueues final : public SessionQueues {
 public:
  // All three must outlive it. Errors: those of hca::Hca::open and of registering the control segment.
  static Result<std::unique_ptr<HcaQueues>> open(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options);
  ~HcaQueues() override;

  QueueEngine engine() const noexcept override;
  // "mlx5_0/1"; behind it why the CPU rings, if it was not asked to.
  std::string describe() const;
  Result<std::uint32_t> add_segment(const OwnSegment& segment) override;
  // Ends with a request of the CPU's in each queue.
  Result<void> connect(Rank rank, std::span<const RemoteBytes> segments, const Timeout& timeout) override;
  // Tells a rank that waits, or will wait, for this side's connect() that it does not come.
  void refuse(Rank rank);
  device::Remote place(Rank rank, SegmentId id) const override;
  void leave(Rank) noexcept override {}
  bool is_empty() const noexcept override { return peers_.empty(); }
  bool has(Rank rank) const noexcept override { return peers_.contains(rank); }
  std::string why_not_mapped(Rank, SegmentId) const override { return "an HCA writes them"; }
  Result<void> start() override;
  void stop() noexcept override;
  Result<void> drain(const Timeout& timeout) override;

 private:
  // Of a segment, as the adapter of the rank that tells it has it.
  struct SegmentKey {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t is_there = 0;
  };
  // How far a rank has come with another. What stands in its state may be used by who sees it there.
  enum class Step : std::uint32_t { none, failed, made, connected, drained };
  // For one peer.
  struct QueueState {
    std::uint32_t attempt = 0;  // that both are at
    Step step = Step::none;
    std::uint32_t queue_count = 0;
    std::array<std::uint32_t, 16> numbers{};
  };
  static_assert(sizeof(QueueState) <= ControlLayout::kStateBytes && sizeof(SegmentKey) == 16);
  static_assert(sizeof(hca::PortAddress) <= ControlLayout::kPortBytes);
  struct Peer {
    std::vector<std::unique_ptr<hca::HcaQueue>> queues;
    std::vector<SegmentKey> keys;  // [id], that of the control segment last
    QueueState told;
  };

  HcaQueues(Fabric& fabric, ControlMemory& memory, const DeviceSessionOptions& options, std::unique_ptr<hca::Hca> hca);
  Result<std::vector<std::byte>> read(Rank rank, std::size_t offset, std::size_t bytes, const Timeout& timeout);
  Result<QueueState> read_state(Rank rank, const Timeout& timeout);
  Result<void> tell(Rank rank, QueueState& state);
  Result<void> introduce();
  Result<QueueState> await(Rank rank, QueueState& own, Step least, const Timeout& timeout);
  Result<void> make_queues(Peer& peer);
  Result<void> meet(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout);
  Result<void> join(Rank rank, Peer& peer, std::span<const RemoteBytes> segments, const Timeout& timeout);
  const SegmentKey& key_of(const Peer& peer, SegmentId id) const {
    return id == options_.control_segment ? peer.keys.back() : peer.keys[id];
  }
  Result<void> empty_queues(Rank rank, const Timeout& timeout);
  void ring_all() noexcept;

  Fabric& fabric_;
  ControlMemory& memory_;
  const DeviceSessionOptions& options_;
  std::unique_ptr<hca::Hca> hca_;
  std::vector<SegmentKey> own_keys_;
  bool has_introduced_ = false;
  bool is_open_ = false;  // a rank whose connect() failed may try again
  hca::Ringer ringer_ = hca::Ringer::kernel;
  std::string why_cpu_;
  std::map<Rank, std::uint32_t> attempts_;
  std::map<Rank, Peer> peers_;  // behind hca_: destroyed before it
  std::atomic<bool> is_stopping_{false};
  std::thread ringing_;
};

}  // namespace gigabar::inline v0
