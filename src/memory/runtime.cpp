// SPDX-License-Identifier: Apache-2.0
#include "memory/runtime.hpp"

#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/cuda/cuda.hpp"

namespace gigabar::inline v0 {

Result<int> forced_stand_in_count() {
  const std::string value = environment("GIGABAR_STAND_IN").value_or("");
  if (value.empty()) return 0;
  if (const auto count = parse_number(value, 1, 64)) return static_cast<int>(*count);
  return make_error(Status::invalid_argument, "list devices", "GIGABAR_STAND_IN", "'" + value + "' is not a number from 1 to 64",
                    "unset it to use the GPUs, or set it to the number of stand-in devices");
}

Result<Runtime*> active_runtime() {
  const auto forced = forced_stand_in_count();
  if (!forced) return forced.error();
  if (*forced > 0) return &stand_in_runtime();
  if (Runtime* runtime = cuda_runtime()) return runtime;
  const Availability& why = cuda::driver().availability;
  if (why.code == AvailabilityCode::driver_unknown) {
    return make_error(Status::device_error, "list devices", "libcuda", why.reason, why.remedy, why.native);
  }
  return &stand_in_runtime();
}

Runtime& runtime_of(const PointerInfo& memory) {
  if (memory.kind == MemoryKind::stand_in) return stand_in_runtime();
  Runtime* runtime = cuda_runtime();
  return runtime != nullptr ? *runtime : stand_in_runtime();
}

}  // namespace gigabar::inline v0
