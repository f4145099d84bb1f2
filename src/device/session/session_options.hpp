// SPDX-License-Identifier: Apache-2.0
// What a session can be opened with.
#pragma once

#include "gigabar/device_session.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// Errors: invalid_argument, which names the option.
Result<void> check_options(const DeviceSessionOptions& options);

}  // namespace gigabar::inline v0
