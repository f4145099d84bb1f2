// SPDX-License-Identifier: Apache-2.0
// Stands for the CUDA part where nvcc was not found.
#include "cuda/pplat_units.hpp"
#include "cuda/runtime.hpp"

namespace gigabar::tool {
namespace {

Availability not_built() {
  return {.code = AvailabilityCode::not_built,
          .reason = "this build has no device code, because nvcc was not found",
          .remedy = "install CUDA's nvcc and build again",
          .native = {}};
}

Error refusal(const char* operation, const char* object) {
  const Availability absent = not_built();
  return Error({.status = Status::unavailable,
                .operation = operation,
                .object = object,
                .native = {},
                .cause = absent.reason + " (not_built)",
                .remedy = absent.remedy});
}

}  // namespace

Availability use_cuda_runtime(int) { return not_built(); }

bool cuda_memcpy(void*, const void*, std::size_t) noexcept { return false; }

std::string cuda_error() { return not_built().reason; }

Result<double> plain_copy_rate(int, void*, const void*, std::size_t, std::uint64_t) {
  return refusal("time copies", "cudaMemcpyAsync");
}

Result<device_ranks::AwaitKernel> start_flags(int, const FlagPlan&, bool, std::uint32_t) {
  return refusal("start kernel", "flag kernel");
}

Result<device_ranks::AwaitKernel> start_calls(int, const CallPlan&, std::uint32_t) {
  return refusal("start kernel", "kernel of calls");
}

namespace device_ranks::gpu {

Result<KernelRun> run_rounds(int, const RoundPlan&, const Grid&) { return refusal("start kernel", "kernel"); }
Result<KernelRun> run_turns(int, const TurnPlan&, const Grid&) { return refusal("start kernel", "kernel"); }
Result<RepeatedKernel> open_turn_kernel(int, const TurnPlan&, const Grid&) { return refusal("start kernel", "kernel"); }
Result<RepeatedKernel> open_matvec(int, const MatvecPlan&, const Grid&) { return refusal("start kernel", "kernel"); }

}  // namespace device_ranks::gpu

}  // namespace gigabar::tool
