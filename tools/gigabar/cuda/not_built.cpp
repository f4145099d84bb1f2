// SPDX-License-Identifier: Apache-2.0
// Stands for the CUDA part where nvcc was not found.
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
                .cause = absent.reason,
                .remedy = absent.remedy});
}

}  // namespace

Availability use_cuda_runtime(int) { return not_built(); }

bool cuda_memcpy(void*, const void*, std::size_t) noexcept { return false; }

std::string cuda_error() { return not_built().reason; }

Result<std::unique_ptr<PingPong>> start_ping_pong(const PingPongPlan&) { return refusal("start kernel", "flag kernel"); }

Result<double> plain_copy_rate(int, void*, const void*, std::size_t, std::uint64_t) {
  return refusal("time copies", "cudaMemcpyAsync");
}

}  // namespace gigabar::tool
