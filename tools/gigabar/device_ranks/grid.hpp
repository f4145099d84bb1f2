// SPDX-License-Identifier: Apache-2.0
// How many scopes of which kind a kernel has, and which of them a thread belongs to.
#pragma once

#include <cstdint>
#include <string_view>

namespace gigabar::tool::device_ranks {

enum class ScopeKind : std::uint8_t { thread, warp, block };

// Units are the scopes of a kernel, numbered over all blocks; each speaks with the partner's unit of the same number.
struct Grid {
  ScopeKind scope = ScopeKind::thread;
  std::uint32_t block_count = 1;
  std::uint32_t threads_per_block = 1;
  std::uint32_t threads_per_unit = 1;  // divides threads_per_block

  constexpr std::uint32_t units_per_block() const noexcept { return threads_per_block / threads_per_unit; }
  constexpr std::uint32_t unit_count() const noexcept { return block_count * units_per_block(); }
};

inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kMaxBlockThreads = 512;  // more would halve the registers of each
// CPU threads that play a warp or a block: enough for lanes to share their work, few enough for small machines.
inline constexpr std::uint32_t kMaxCpuLanes = 2;
inline constexpr std::uint32_t kMaxCpuThreads = 256;  // of one kernel

}  // namespace gigabar::tool::device_ranks
