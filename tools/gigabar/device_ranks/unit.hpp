// SPDX-License-Identifier: Apache-2.0
// The units of a kernel: how many scopes of which kind it has, what each does, and what it reports.
#pragma once

#include <cstdint>

#include "gigabar/device/fabric.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/scope.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks {

enum class ScopeKind : std::uint8_t { thread, warp, block, blocks };  // blocks: all of the kernel as one

// Units are the scopes of a kernel, numbered over all blocks; each speaks with the partner's unit of the same number.
struct Grid {
  ScopeKind scope = ScopeKind::thread;
  std::uint32_t block_count = 1;
  std::uint32_t threads_per_block = 1;
  std::uint32_t threads_per_unit = 1;  // divides threads_per_block; of a unit of several blocks: those of each

  constexpr std::uint32_t units_per_block() const noexcept { return threads_per_block / threads_per_unit; }
  constexpr std::uint32_t unit_count() const noexcept { return scope == ScopeKind::blocks ? 1 : block_count * units_per_block(); }
};

inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kMaxBlockThreads = 512;  // more would halve the registers of each
// CPU threads that play a warp or a block: enough for lanes to share their work, few enough for small machines.
inline constexpr std::uint32_t kMaxCpuLanes = 2;
inline constexpr std::uint32_t kMaxCpuThreads = 256;  // of one kernel

inline constexpr SegmentId kDataSegment = 0;  // memory and notifications of both ranks

// What every kernel between two ranks is told. Plain, as all that is derived from it: kernels get it by value.
struct PairPlan {
  device::DeviceFabric fabric;
  Rank partner = 0;
  std::uint64_t timeout_ns = 0;  // of one wait, and of all that one kernel does
};

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

// Whether all blocks of a kernel may be one such unit. Only those that are compiled for it, because each kernel takes nvcc long.
template <template <class> class Unit>
inline constexpr bool kTakesBlocks = false;

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

  // By each of `count` blocks: the one unit that they are.
  static constexpr bool kIsForBlocks = kTakesBlocks<Unit>;
  template <class Own>
  GIGABAR_DEVICE void run_block(const Own& own, std::uint32_t count, std::uint32_t index) const {
    device::BasicBlocks<Own> blocks(own);
    const Status opened = open_blocks(plan.fabric, 0, count, index, blocks, {plan.timeout_ns});
    if (opened == Status::ok) {
      (*this)(blocks, 0);
    } else if (blocks.rank() == 0) {
      ends->status = opened;
    }
  }
};

template <class Body>
constexpr bool is_for_blocks() {
  if constexpr (requires { Body::kIsForBlocks; }) return Body::kIsForBlocks;
  return false;
}

}  // namespace gigabar::tool::device_ranks
