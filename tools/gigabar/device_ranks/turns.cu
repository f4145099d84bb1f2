// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/turn_unit.hpp"

namespace gigabar::tool::device_ranks::gpu {

Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid) {
  return run_reporting(device, grid, TurnsBody{plan});
}

// Its blocks wait for nobody, so that they need not be on the device at once.
Result<RepeatedKernel> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid) {
  const auto launch = std::make_shared<Launch>();
  if (Result<void> opened = launch->open(device, grid); !opened) return std::move(opened).error();
  return repeated(launch, [=, own = launch.get()](std::uint32_t checked_round, std::uint32_t computed_round) {
    kernel_of<OneTurnBody>(grid.scope)<<<grid.block_count, grid.threads_per_block, 0, own->stream()>>>(
        OneTurnBody{plan, own->ends(), checked_round, computed_round});
  });
}

}  // namespace gigabar::tool::device_ranks::gpu
