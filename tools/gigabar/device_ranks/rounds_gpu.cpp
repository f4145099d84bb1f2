// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/round_unit.hpp"
#include "device_ranks/unit.hpp"

namespace gigabar::tool::device_ranks::gpu {

// Defined where the unit's kernels are compiled: rounds_*.cu, several files, because they take nvcc longest.
template <class Body>
Result<KernelRun> run_reporting(int device, const Grid& grid, Body body);

Result<KernelRun> run_rounds(int device, const RoundPlan& plan, const Grid& grid) {
  return run_body(plan, [&](const auto& body) { return run_reporting(device, grid, body); });
}

}  // namespace gigabar::tool::device_ranks::gpu
