// SPDX-License-Identifier: Apache-2.0
// pplat by messages: the CPU calls a kernel that stays, by a KernelRing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "support/clock.hpp"

namespace gigabar::tool {

struct MessageGame {
  std::uint32_t rounds = 0;
  std::uint32_t warm_up_count = 0;  // of them, without a sample
  std::size_t data_bytes = 0;       // of a message, a multiple of 4
  std::uint32_t threads = 0;        // of the kernel's scope, at most
  double timeout_seconds = 0;       // of all rounds together
};

inline constexpr std::size_t kMaxGameBytes = std::size_t{1} << 27;  // of a message; a ring holds eight

// Threads that a kernel's scope needs for a message: a warp as long as each of its threads loads all its lines at once.
std::uint32_t threads_for(std::size_t data_bytes, std::uint32_t most);

// Ticks of each round after the warm-up. Every word of every answer is checked, outside the time. Ends the command where a call
// fails, or an answer is wrong.
std::vector<std::uint64_t> play_messages(const MessageGame& game, const DeviceInfo& device, const SampleClock& clock);

}  // namespace gigabar::tool
