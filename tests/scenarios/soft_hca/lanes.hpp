// SPDX-License-Identifier: Apache-2.0
// Threads of the CPU as the lanes of a kernel.
#pragma once

#include <deque>

#include "scenarios/soft_hca/lane.hpp"

namespace gigabar::tool::softhca {

// Runs all lanes at the same time: each by itself, or all as one block. Returns when all have ended. Ends the command when the
// system has no thread left; none has posted anything then.
void run_lanes(ScopeKind scope, Sharing sharing, const Rules& rules, std::deque<Lane>& lanes);

}  // namespace gigabar::tool::softhca
