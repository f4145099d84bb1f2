// SPDX-License-Identifier: Apache-2.0
#include "cuda/pplat_units.hpp"
#include "device_ranks/run_on_gpu.cuh"

namespace gigabar::tool {
namespace {

constexpr std::uint32_t kMaxFlagThreads = 1024;

__global__ void __launch_bounds__(kMaxFlagThreads) flags_by_block(const __grid_constant__ FlagBody body) {
  body(device::Block{}, blockIdx.x);
}

template <class Scope>
__global__ void __launch_bounds__(device_ranks::kMaxBlockThreads) calls_by(const __grid_constant__ CallBody body) {
  body(Scope{}, 0);
}

}  // namespace

Result<device_ranks::AwaitKernel> start_flags(int device, const FlagPlan& plan, std::uint32_t threads_per_block) {
  const device_ranks::Grid grid{device_ranks::ScopeKind::block, plan.block_count, threads_per_block, threads_per_block};
  const FlagBody body{plan};
  return device_ranks::gpu::start_reporting(device, grid, body, body.sample_count(), flags_by_block);
}

Result<device_ranks::AwaitKernel> start_calls(int device, const CallPlan& plan, std::uint32_t threads) {
  const bool is_warp = threads == device_ranks::kWarpThreads;
  const device_ranks::Grid grid{is_warp ? device_ranks::ScopeKind::warp : device_ranks::ScopeKind::block, 1, threads, threads};
  const CallBody body{plan};
  return device_ranks::gpu::start_reporting(device, grid, body, 0, is_warp ? calls_by<device::Warp> : calls_by<device::Block>);
}

}  // namespace gigabar::tool
