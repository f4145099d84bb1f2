// SPDX-License-Identifier: Apache-2.0
// A CPU thread that plays the flag kernel on a stand-in device, with the same plan and the same report.
#pragma once

#include <memory>

#include "cuda/runtime.hpp"

namespace gigabar::tool {

Result<std::unique_ptr<PingPong>> start_stand_in_ping_pong(const PingPongPlan& plan);

}  // namespace gigabar::tool
