// SPDX-License-Identifier: Apache-2.0
// Two blocks of memory of this process, and queues of a software HCA between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/soft_hca/memory_wire.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/device/queue.hpp"

namespace gigabar::tool::softhca {

// Zeroed bytes that begin at a multiple of 64.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::uint64_t bytes);
  std::byte* data() const noexcept { return static_cast<std::byte*>(start_.get()); }
  std::span<std::byte> span() const noexcept { return {data(), bytes_}; }

 private:
  struct Free {
    void operator()(void* start) const noexcept { std::free(start); }
  };
  std::size_t bytes_;
  std::unique_ptr<void, Free> start_;
};

// Operations that the HCA has begun, by queue, and how often one was begun before the earlier posted one of another queue.
struct Order {
  explicit Order(std::uint32_t queue_count) : begun(queue_count) {}
  std::vector<std::atomic<std::uint64_t>> begun;
  std::atomic<std::uint64_t> overtaken_count{0};
};

// A wire to memory that keeps account of the order. The n-th operation of `before` was posted before the n-th of `index`; where the
// two are equal, there is no such queue.
class WatchedWire final : public soft_hca::Wire {
 public:
  WatchedWire(const soft_hca::MemoryTable& peer, Order& order, std::uint32_t index, std::uint32_t before)
      : wire_(peer), order_(&order), index_(index), before_(before) {}
  bool begin(const soft_hca::WireOperation& operation) override;
  std::optional<soft_hca::Syndrome> poll() override { return wire_.poll(); }

 private:
  soft_hca::MemoryWire wire_;
  Order* order_;
  std::uint32_t index_;
  std::uint32_t before_;
};

struct RigOptions {
  std::uint64_t block_bytes = 0;  // of each side
  std::uint32_t queue_count = 1;
  std::uint32_t posters = 1;  // that divide the queues: queue q is posted to behind queue q - posters
  soft_hca::QueueOptions queue;
};

// Ends the command when the HCA refuses a queue.
class Rig {
 public:
  explicit Rig(const RigOptions& options);
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  soft_hca::SoftHca& hca() noexcept { return hca_; }
  std::uint32_t queue_count() const noexcept { return static_cast<std::uint32_t>(queues_.size()); }
  device::Queue& queue(std::uint32_t index) { return queues_[index].queue; }
  void set_faults(std::uint32_t index, const soft_hca::Faults& faults);
  soft_hca::QueueStatistics statistics(std::uint32_t index);
  std::uint64_t overtaken_count() const noexcept { return order_.overtaken_count.load(); }

  // As work requests name them: by addresses that are none of this process.
  device::Local local(std::uint64_t offset_bytes) const noexcept;
  device::Remote remote(std::uint64_t offset_bytes) const noexcept;
  std::span<std::byte> initiator() const noexcept { return initiator_.span(); }
  std::span<std::byte> target() const noexcept { return target_.span(); }

 private:
  // Of one queue.
  struct Line {
    Line(Rig& rig, const RigOptions& options, std::uint32_t index);
    AlignedBytes ring, cq, doorbells;
    WatchedWire wire;
    device::Queue queue;
    std::uint32_t number = 0;
  };

  AlignedBytes initiator_, target_;
  soft_hca::MemoryTable peer_;
  Order order_;
  std::deque<Line> queues_;  // does not move its elements; outlives the HCA, which looks at them
  soft_hca::SoftHca hca_;
  std::uint32_t local_key_ = 0, remote_key_ = 0;
};

}  // namespace gigabar::tool::softhca
