// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/run_on_gpu.cuh"
#include "device_ranks/side_by_side_units.hpp"

namespace gigabar::tool::device_ranks::gpu {
namespace {

__global__ void __launch_bounds__(kMaxBlockThreads) matvec_by_block(const __grid_constant__ MatvecBody body) {
  extern __shared__ float fast[];
  body(device::Block{}, blockIdx.x, fast);
}

}  // namespace

template <>
auto kernel_of<MatvecBody>(ScopeKind) -> void (*)(MatvecBody) {
  return matvec_by_block;
}

template Result<KernelRun> run_reporting(int, const Grid&, TurnsBody);
template Result<RepeatedKernel<OneTurnBody>> open_repeated(int, const Grid&, std::uint64_t);
template Result<RepeatedKernel<MatvecBody>> open_repeated(int, const Grid&, std::uint64_t);

}  // namespace gigabar::tool::device_ranks::gpu
