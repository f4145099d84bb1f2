// SPDX-License-Identifier: Apache-2.0
// The units of a kernel: how many scopes of which kind it has, what each does, and what it reports.
#pragma once

#include <cstdint>

#include "gigabar/device/memory.hpp"
#include "gigabar/status.hpp"

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

// What one unit of a kernel reports. Plain: it lies in device memory, the host reads it after the kernel's end.
struct UnitEnd {
  Status status = Status::ok;
  std::uint32_t rounds_done = 0;
  std::uint64_t elapsed_ns = 0;     // device::now_ns() around all rounds
  std::uint64_t timed_from_ns = 0;  // the same clock, when the first round that is timed began
  std::uint64_t elapsed_ticks = 0;  // the clock of the samples, over the same time
  std::uint64_t wrong_count = 0;    // words of data, or notifications, that were not as sent
  std::uint32_t wrong_round = 0;    // of the first: also the following
  std::uint32_t wrong_message = 0;
  std::uint64_t wrong_offset_bytes = 0;
  std::uint64_t wrong_expected = 0;
  std::uint64_t wrong_found = 0;
  std::uint64_t next_piece = 0;  // of the first unit: what the next of all units takes, where they share the bytes
};

// A kernel of units that report.
// Unit<Scope>(scope, plan, index, end).run(samples): [plan.sample_count()] samples, and an end that is zeroed.
template <template <class> class Unit, class Plan>
struct UnitBody {
  Plan plan;
  std::uint64_t* samples = nullptr;  // of all units
  UnitEnd* ends = nullptr;           // [unit_count]

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit) const {
    Unit<Scope>(scope, plan, unit, ends + unit).run(samples + std::uint64_t{unit} * plan.sample_count());
  }
};

}  // namespace gigabar::tool::device_ranks
