// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/rounds_body.hpp"
#include "device_ranks/run_on_cpu.hpp"

namespace gigabar::tool::device_ranks {

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_rounds(device.index, plan, grid);
  return run_body(plan, [&](const auto& body) { return run_reporting(grid, body); });
}

}  // namespace gigabar::tool::device_ranks
