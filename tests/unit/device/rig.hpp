// SPDX-License-Identifier: Apache-2.0
// A queue, a software HCA and the memory of two sides, in one process.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "device/soft_hca/memory_wire.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "gigabar/device/queue.hpp"

namespace gigabar::soft_hca::test {

namespace mlx5 = device::mlx5;
using device::Fence;
using device::Inline;
using device::inline_value;
using device::Local;
using device::Remote;
using device::Sharing;
using device::Thread;
using device::Ticket;
using device::Timeout;

inline constexpr Timeout kLong{std::uint64_t{20'000'000'000}};
inline constexpr Timeout kShort{2'000'000};
inline constexpr Sharing kAlone = Sharing::exclusive;

// Zeroed bytes at 64.
class Bytes {
 public:
  explicit Bytes(std::size_t bytes) : bytes_((bytes + 63) / 64 * 64), start_(std::aligned_alloc(64, bytes_), &std::free) {
    std::memset(start_.get(), 0, bytes_);
  }
  std::byte* data() const { return static_cast<std::byte*>(start_.get()); }
  std::size_t size() const { return bytes_; }
  std::uint64_t address(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<std::uintptr_t>(start_.get()) + offset_bytes;
  }
  template <class T>
  T& at(std::size_t offset_bytes) const {
    return *reinterpret_cast<T*>(data() + offset_bytes);
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<void, decltype(&std::free)> start_;
};

inline constexpr std::size_t kMemoryBytes = std::size_t{64} << 10;
inline constexpr std::uint64_t kPeerBase =
    0x7700'0000'0000;  // what work requests call the peer's memory: no address of this process
inline constexpr std::uint64_t kLocalBase = 0x6600'0000'0000;

// The memory of one queue and its wire.
struct QueueRig {
  QueueRig(SoftHca& hca, const MemoryTable& peer, const QueueOptions& options)
      : ring(sizes_of(options).ring_bytes), cq(sizes_of(options).cq_bytes), doorbells(128), wire(peer) {
    const QueueMemory memory{Place::plain(ring.data()), Place::plain(doorbells.data()), Place::plain(doorbells.data() + 64),
                             Place::plain(cq.data())};
    auto created = hca.create_queue(options, memory, wire, queue);
    EXPECT_TRUE(created) << created.error().message();
    if (created) number = *created;
  }

  Bytes ring, cq, doorbells;
  MemoryWire wire;
  device::Queue queue;
  std::uint32_t number = 0;
};

struct Rig {
  explicit Rig(const QueueOptions& options = small_ring()) {
    local_key = *hca.memory().register_memory({local.data(), kLocalBase, kMemoryBytes, Access::local_write});
    peer_key = *peer.register_memory({remote.data(), kPeerBase, kMemoryBytes, Access::everything});
    add_queue(options);
  }
  static QueueOptions small_ring() {
    QueueOptions options;
    options.depth = 16;
    options.most_late_polls = 2;
    return options;
  }

  QueueRig& add_queue(const QueueOptions& options) { return queues.emplace_back(hca, peer, options); }
  device::Queue& queue(std::size_t index = 0) { return queues[index].queue; }
  Local at_local(std::uint64_t offset_bytes) const { return {kLocalBase + offset_bytes, local_key}; }
  Remote at_peer(std::uint64_t offset_bytes) const { return {kPeerBase + offset_bytes, peer_key}; }
  // Until nothing is left to do, and what is late is given up.
  void run() {
    for (int vain = 0; vain < 4;) vain = hca.poll() ? 0 : vain + 1;
  }
  void set_faults(const Faults& faults, std::size_t index = 0) {
    const Result<void> outcome = hca.set_faults(queues[index].number, faults);
    EXPECT_TRUE(outcome) << outcome.message();
  }
  QueueStatistics statistics(std::size_t index = 0) { return *hca.statistics(queues[index].number); }
  void fill_local(std::uint8_t seed) {
    for (std::size_t i = 0; i < kMemoryBytes; ++i) local.at<std::uint8_t>(i) = static_cast<std::uint8_t>(i * 7 + seed);
  }
  bool is_peer_zero() const {
    for (std::size_t i = 0; i < kMemoryBytes; ++i) {
      if (remote.at<std::uint8_t>(i) != 0) return false;
    }
    return true;
  }

  SoftHca hca;
  MemoryTable peer;
  Bytes local{kMemoryBytes}, remote{kMemoryBytes};
  std::uint32_t local_key = 0, peer_key = 0;
  std::deque<QueueRig> queues;
};

// Every way to complete, and starts near the ends of 16 bits.
inline std::vector<QueueOptions> all_kinds(std::uint32_t depth) {
  std::vector<QueueOptions> kinds;
  for (const std::uint64_t first_index : {std::uint64_t{0}, std::uint64_t{0xfff5}, std::uint64_t{0x1fffb}}) {
    for (const std::uint32_t cq_depth : {0U, depth, 4 * depth}) {
      QueueOptions options;
      options.depth = depth;
      options.cq_depth = cq_depth;
      options.is_collapsed = cq_depth == 0;
      options.first_index = first_index;
      kinds.push_back(options);
    }
  }
  return kinds;
}
inline std::string kind_name(const testing::TestParamInfo<QueueOptions>& kind) {
  const QueueOptions& options = kind.param;
  return (options.is_collapsed ? "collapsed" : "cq" + std::to_string(options.cq_depth)) + "_" + std::to_string(options.first_index);
}

}  // namespace gigabar::soft_hca::test

namespace gigabar::soft_hca {
// For GoogleTest.
inline void PrintTo(const QueueOptions& options, std::ostream* out) {
  *out << "depth " << options.depth << ", CQEs " << options.cq_depth << ", from " << options.first_index;
}
}  // namespace gigabar::soft_hca
