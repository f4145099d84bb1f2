// SPDX-License-Identifier: Apache-2.0
// Waiting until a device has nothing to do.
#pragma once

#include <cstdint>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// Waits until all work that this process gave the device before the call has ended, of every stream and library. At most
// `timeout_ns` (negative: no limit). A stand-in has no work. Errors: timed_out, device_error.
// Threads: any. Cost: a thread for as long as the work lasts, also beyond the call.
Result<void> wait_until_idle(int device, std::int64_t timeout_ns);

}  // namespace gigabar::inline v0
