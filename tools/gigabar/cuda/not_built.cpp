// SPDX-License-Identifier: Apache-2.0
// Stands for the CUDA part where nvcc was not found.
#include "cuda/pplat_units.hpp"
#include "cuda/runtime.hpp"

namespace gigabar::tool {
namespace {

constexpr const char* kReason = "this build has no device code, because nvcc was not found";
constexpr const char* kRemedy = "install CUDA's nvcc and build again";

Error refusal(const char* operation, const char* object) {
  return Error({.status = Status::unavailable,
                .operation = operation,
                .object = object,
                .native = {},
                .cause = kReason + std::string(" (not_built)"),
                .remedy = kRemedy});
}

}  // namespace

Availability use_cuda_runtime(int) {
  return {.code = AvailabilityCode::not_built, .reason = kReason, .remedy = kRemedy, .native = {}};
}

bool cuda_memcpy(void*, const void*, std::size_t) noexcept { return false; }

std::string cuda_error() { return kReason; }

Result<double> plain_copy_rate(int, void*, const void*, std::size_t, std::uint64_t) {
  return refusal("time copies", "cudaMemcpyAsync");
}

Result<device_ranks::AwaitKernel> start_flags(int, const FlagPlan&, std::uint32_t) {
  return refusal("start kernel", "flag kernel");
}

Result<device_ranks::AwaitKernel> start_calls(int, const CallPlan&, std::uint32_t) {
  return refusal("start kernel", "kernel of calls");
}

}  // namespace gigabar::tool
