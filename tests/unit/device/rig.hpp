// SPDX-License-Identifier: Apache-2.0
// One thread's rig: queues over a MemoryWire, executed when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <ostream>
#include <string>
#include <vector>

#include "scenarios/soft_hca/memory_wire.hpp"
#include "scenarios/soft_hca/rig.hpp"

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

inline constexpr std::size_t kMemoryBytes = std::size_t{64} << 10;

struct Rig : TwoSides {
  explicit Rig(const QueueOptions& options = small_ring()) : TwoSides(kMemoryBytes) { add_queue(options); }
  static QueueOptions small_ring() {
    QueueOptions options;
    options.depth = 16;
    options.most_late_polls = 2;
    return options;
  }

  QueueRig& add_queue(const QueueOptions& options) { return TwoSides::add_queue(options, wires.emplace_back(peer)); }
  // Until nothing is left to do, and what is late is given up.
  void run() {
    for (int vain = 0; vain < 4;) vain = hca.poll() ? 0 : vain + 1;
  }
  void fill_local(std::uint8_t seed) {
    for (std::size_t i = 0; i < kMemoryBytes; ++i) local.at<std::uint8_t>(i) = static_cast<std::uint8_t>(i * 7 + seed);
  }
  bool is_peer_zero() const {
    for (std::size_t i = 0; i < kMemoryBytes; ++i) {
      if (remote.at<std::uint8_t>(i) != 0) return false;
    }
    return true;
  }

  std::deque<MemoryWire> wires;
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
