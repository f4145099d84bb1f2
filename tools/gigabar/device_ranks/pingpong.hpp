// SPDX-License-Identifier: Apache-2.0
// gigabar pingpong: a message that each rank computes from round to round, sent by the kernel that computed it, and by the CPU when
// that kernel has ended; side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device_ranks/plan.hpp"
#include "ranks/fabric_settings.hpp"
#include "support/options.hpp"

namespace gigabar::tool::device_ranks {

struct PingpongOptions {
  std::string sizes;  // -m, as typed
  GridOptions grid;
  std::uint64_t work_us = 0;
  std::uint32_t iteration_count = 200;
  std::uint32_t warm_up_count = 20;
  std::optional<std::uint64_t> fault_bytes;
  std::string json_path;
  ranks::FabricSettings fabric;
};

void run_pingpong(const PingpongOptions& options, Invocation& invocation);

}  // namespace gigabar::tool::device_ranks
