// SPDX-License-Identifier: Apache-2.0
// What one unit of a kernel reports. Plain.
#pragma once

#include <cstdint>

#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks {

// Lies in device memory, the host reads it after the kernel's end.
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

}  // namespace gigabar::tool::device_ranks
