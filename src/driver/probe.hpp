// SPDX-License-Identifier: Apache-2.0
// A library that may end the process that opens it is opened by another process first.
//
// That process is a program of its own, started anew, and no fork of this one: a fork would have the locks of threads that it does
// not have, pages that a NIC has pinned here would be copied away from it, CUDA's contexts would come along, and a large process
// takes long to be copied.
#pragma once

#include <string>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// The command line of the process that opens it: PROGRAM --gigabar-probe LIBRARY.
inline constexpr const char* kProbeOption = "--gigabar-probe";

// Starts a process that opens `library` ("ucx") and does what this process is going to do with it. ok: it came back from that, with
// whatever result. Else not_supported: it died, exited or took longer than GIGABAR_PROBE_SECONDS (10), or could not be started. The
// reason says which, and the last line that it printed. Time for which it waits for a processor does not count, up to five times as
// long. With GIGABAR_PROBE_SECONDS=0 nothing is tried, and in a probe process neither. Cost: starts a process and waits for its
// end. Threads: any.
Availability try_library(const char* library);

// This process is one that try_library() has started. It ends with its parent, and by itself some time after the parent would have
// ended it; it leaves no core.
void begin_probe();
// It has come back from the library. Ends the process.
[[noreturn]] void end_probe();
// main() of this program looks for kProbeOption: it is started for probes, and no other one is needed.
void serve_probes();

}  // namespace gigabar::inline v0
