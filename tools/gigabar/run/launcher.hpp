// SPDX-License-Identifier: Apache-2.0
// The ranks of one job on this host, from their start to the end of the last one.
#pragma once

#include "run/start.hpp"

namespace gigabar::tool::run {

// Starts all ranks and waits for them. When one fails (unless the job keeps going), at the timeout, and when this process gets
// SIGINT, SIGTERM or SIGHUP, the others are asked to end and killed after the grace period. Answers the exit status of the first
// rank that failed (128 + the number of the signal that ended it), 124 at the timeout when none had failed before, 0 when all
// succeeded. Labelled output that cannot be written fails the job like a rank that fails: 1 takes the place of 0. A reader that is
// gone is left to the ranks, who get SIGPIPE. A slow one is waited for, also after the last rank's end, until the timeout or a
// signal.
int launch(const JobSettings& settings);

inline constexpr int kExitTimedOut = 124;  // as timeout(1)

}  // namespace gigabar::tool::run
