// SPDX-License-Identifier: Apache-2.0
// Stands for the kernels where nvcc was not found.
#include "device_ranks/kernels.hpp"

namespace gigabar::tool::device_ranks::gpu {
namespace {

Error refusal() {
  return Error({.status = Status::unavailable,
                .operation = "start kernel",
                .object = "kernel",
                .native = {},
                .cause = "this build has no device code, because nvcc was not found (not_built)",
                .remedy = "install CUDA's nvcc and build again"});
}

}  // namespace

Result<KernelRun> run_rounds(int /*device*/, const RoundPlan& /*plan*/, const Grid& /*grid*/) { return refusal(); }
Result<KernelRun> run_turns(int /*device*/, const TurnPlan& /*plan*/, const Grid& /*grid*/) { return refusal(); }
Result<std::unique_ptr<TurnKernel>> open_turn_kernel(int /*device*/, const TurnPlan& /*plan*/, const Grid& /*grid*/) {
  return refusal();
}
Result<std::unique_ptr<MatvecKernels>> open_matvec(int /*device*/, const MatvecPlan& /*plan*/, const Grid& /*grid*/) {
  return refusal();
}

}  // namespace gigabar::tool::device_ranks::gpu
