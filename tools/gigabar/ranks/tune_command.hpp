// SPDX-License-Identifier: Apache-2.0
// Runs `gigabar tune` as one of two ranks, or starts them when there is no launcher.
#pragma once

#include "ranks/tune_measure.hpp"
#include "support/options.hpp"

namespace gigabar::tool::ranks {

void run_tune(const TuneOptions& options, Invocation& invocation);

}  // namespace gigabar::tool::ranks
