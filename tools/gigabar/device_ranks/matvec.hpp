// SPDX-License-Identifier: Apache-2.0
// gigabar matvec: vectors stream from one rank to the other, which multiplies them by a matrix and streams the products back; by a
// kernel that stays, and by one kernel for each batch; side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device_ranks/plan.hpp"
#include "ranks/fabric_settings.hpp"
#include "support/options.hpp"

namespace gigabar::tool::device_ranks {

struct MatvecOptions {
  std::string sizes;    // -m, as typed: elements of a vector
  std::string batches;  // -b, as typed: vectors of a block in a batch
  GridOptions grid;
  std::uint32_t batch_count = 200;
  std::uint32_t slot_count = 4;
  bool plants_fault = false;
  std::string json_path;
  ranks::FabricSettings fabric;
};

void run_matvec(const MatvecOptions& options, Invocation& invocation);

}  // namespace gigabar::tool::device_ranks
