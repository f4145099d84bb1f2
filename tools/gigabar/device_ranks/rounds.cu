#include "device_ranks/rounds_body.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool::device_ranks::gpu {

Result<KernelRun> run_rounds(int device, const RoundPlan& plan, const Grid& grid) {
  return run_body(plan, [&](const auto& body) { return run_reporting(device, grid, body); });
}

}  // namespace gigabar::tool::device_ranks::gpu
