// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softhca/plan.hpp"
#include "support/options.hpp"

namespace gigabar::tool::softhca {

// Ends the command where anything was not as documented.
void run_command(const Options& options, const Invocation& invocation);

}  // namespace gigabar::tool::softhca
