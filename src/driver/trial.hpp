// SPDX-License-Identifier: Apache-2.0
// A library that may end the process that opens it is opened by another process first.
//
// That process is a program of its own, started anew, and no fork of this one: a fork would have the locks of threads that it does
// not have, pages that a NIC has pinned here would be copied away from it, CUDA's contexts would come along, and a large process
// takes long to be copied.
#pragma once

#include <string>

#include "gigabar/status.hpp"

namespace gigabar {

// The command line of the process that opens it: PROGRAM --gigabar-trial LIBRARY.
inline constexpr const char* kTrialOption = "--gigabar-trial";

// Starts a process that opens `library` ("ucx") and does what this process is going to do with it. ok: it came back from that, with
// whatever result. Else not_supported: it died, exited or took longer than GIGABAR_TRIAL_SECONDS (10), or could not be started. The
// reason says which, and the last line that it printed. Time for which it waits for a processor does not count, up to five times as
// long. With GIGABAR_TRIAL_SECONDS=0 nothing is tried, and in a trial process neither. Cost: starts a process and waits for its
// end. Threads: any.
Availability try_library(const char* library);

// This process is one that try_library() has started. It ends with its parent, and by itself some time after the parent would have
// ended it; it leaves no core.
void begin_trial();
// It has come back from the library. Ends the process.
[[noreturn]] void end_trial();
// main() of this program looks for kTrialOption: it is started for trials, and no other one is needed.
void serve_trials();

}  // namespace gigabar
