// SPDX-License-Identifier: Apache-2.0
#include "cuda/flag_unit.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool {
namespace {

constexpr std::uint32_t kMaxFlagThreads = 1024;

template <class Body>
__global__ void __launch_bounds__(kMaxFlagThreads) flags_by_block(const __grid_constant__ Body body) {
  body(device::Block{}, blockIdx.x);
}

template <class Body>
Result<device_ranks::AwaitKernel> start(int device, const Body& body, std::uint32_t threads) {
  const device_ranks::Grid grid{device_ranks::ScopeKind::block, body.plan.block_count, threads, threads};
  return device_ranks::gpu::start_reporting(device, grid, body, body.sample_count(), flags_by_block<Body>);
}

}  // namespace

Result<device_ranks::AwaitKernel> start_flags(int device, const FlagPlan& plan, bool device_starts,
                                              std::uint32_t threads_per_block) {
  return device_starts ? start(device, FlagBody<true>{plan}, threads_per_block)
                       : start(device, FlagBody<false>{plan}, threads_per_block);
}

}  // namespace gigabar::tool
