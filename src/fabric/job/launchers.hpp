// SPDX-License-Identifier: Apache-2.0
// Which launcher started this process, by the variables that it leaves.
#pragma once

#include <string>

#include "fabric/job/job.hpp"

namespace gigabar::fabric {

// GIGABAR_LAUNCHER when it is set, else what the environment shows: pmix, environment, slurm, or none for a process that is no part
// of a larger job. A launcher that says that its job has one process counts as none. Errors: invalid_argument naming the variable
// that is wrong: GIGABAR_LAUNCHER, half an environment, or that of a launcher whose ranks cannot find each other.
Result<Launcher> find_launcher();

// This process's rank as its launcher wrote it, "0" when none did: for what has to be known of a rank that has no job yet.
std::string stated_rank();

}  // namespace gigabar::fabric
