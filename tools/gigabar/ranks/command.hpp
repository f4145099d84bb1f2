// SPDX-License-Identifier: Apache-2.0
// Runs one of the commands as one rank of a job, or starts the ranks when there is no launcher.
#pragma once

#include "ranks/plan.hpp"
#include "support/options.hpp"

namespace gigabar::tool::ranks {

void run_command(const Options& options, Invocation& invocation);

}  // namespace gigabar::tool::ranks
