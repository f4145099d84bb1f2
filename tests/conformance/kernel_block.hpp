// SPDX-License-Identifier: Apache-2.0
// Kernels that threads of the CPU play, and the ranks that they speak with.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "conformance/ranks.hpp"
#include "gigabar/device/scope.hpp"

namespace gigabar::test {

// A kernel: `size` threads run `body` as one block.
inline void run_block(std::uint32_t size, const std::function<void(const device::CpuTeam::Member&)>& body) {
  device::CpuTeam team(size);
  std::vector<std::thread> lanes;
  for (std::uint32_t lane = 1; lane < size; ++lane) lanes.emplace_back([&, lane] { body(device::CpuTeam::Member(team, lane)); });
  body(device::CpuTeam::Member(team, 0));
  for (std::thread& lane : lanes) lane.join();
}

inline Rank next_of(const RankProcess& me, Rank by = 1) { return (me.rank() + by) % me.rank_count(); }
inline Rank previous_of(const RankProcess& me) { return (me.rank() + me.rank_count() - 1) % me.rank_count(); }

}  // namespace gigabar::test
