// SPDX-License-Identifier: Apache-2.0
// What the kernels of pingpong are told.
#pragma once

#include <cstdint>

#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks {

inline constexpr std::uint32_t kNoRound = 0xffffffff;

// Unit u computes and sends the bytes [u * part_stride_bytes, + part_stride_bytes) of the message, as far as it reaches. A segment
// has the message that is sent, then the one that is received.
struct TurnPlan : PairPlan {
  bool is_active = false;  // begins each round and takes the time
  std::uint32_t round_count = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t part_stride_bytes = 0;
  std::uint64_t receive_offset_bytes = 0;
  std::uint64_t work_ns = 0;   // that a unit computes for, per turn
  bool uses_messages = false;  // by a ring for each unit, else by writes
  bool plants_fault = false;   // falsifies what came in the last round

  GIGABAR_DEVICE std::uint32_t sample_count() const { return round_count; }
};

}  // namespace gigabar::tool::device_ranks
