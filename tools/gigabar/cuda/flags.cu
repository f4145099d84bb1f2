// SPDX-License-Identifier: Apache-2.0
#include "cuda/pplat_units.hpp"
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

template <class Scope>
__global__ void __launch_bounds__(device_ranks::kMaxBlockThreads) calls_by(const __grid_constant__ CallBody body) {
  body(Scope{}, 0);
}

}  // namespace

Result<device_ranks::AwaitKernel> start_flags(int device, const FlagPlan& plan, bool device_starts,
                                              std::uint32_t threads_per_block) {
  return device_starts ? start(device, FlagBody<true>{plan}, threads_per_block)
                       : start(device, FlagBody<false>{plan}, threads_per_block);
}

Result<device_ranks::AwaitKernel> start_calls(int device, const CallPlan& plan, std::uint32_t threads) {
  const bool is_warp = threads == device_ranks::kWarpThreads;
  const device_ranks::Grid grid{is_warp ? device_ranks::ScopeKind::warp : device_ranks::ScopeKind::block, 1, threads, threads};
  const CallBody body{plan};
  return device_ranks::gpu::start_reporting(device, grid, body, 0, is_warp ? calls_by<device::Warp> : calls_by<device::Block>);
}

}  // namespace gigabar::tool
