// SPDX-License-Identifier: Apache-2.0
// Runs device-latency, device-bw and device-rate as one of two ranks, or starts those two where there is no launcher.
#pragma once

#include "device_ranks/plan.hpp"
#include "support/options.hpp"

namespace gigabar::tool::device_ranks {

void run_command(const Options& options, Invocation& invocation);

}  // namespace gigabar::tool::device_ranks
