// SPDX-License-Identifier: Apache-2.0
// --sysroot: which machine a command looks at, and how its output says so.
#pragma once

#include <string>

#include "gigabar/machine.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool {

Option add_sysroot_option(const Command& command, std::string& path);

// This machine when `path` is empty. Ends the command as bad usage when the path cannot be opened: nothing was looked at then.
Machine open_machine(const std::string& path);

// On top of the text, and under "origin" in the document: that the machine is a captured one, and what its maker says of it; of
// this machine, that GIGABAR_STAND_IN asks for stand-ins in place of its GPUs. Ends the command where that is no number.
void tell_origin(Report& report, const Machine& machine);

}  // namespace gigabar::tool
