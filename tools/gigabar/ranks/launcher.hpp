// SPDX-License-Identifier: Apache-2.0
// What the environment says about a launcher, for what has to be known before the fabric is open.
#pragma once

#include <string>

#include "fabric/job/launchers.hpp"
#include "ranks/fabric_failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {

// A launcher has started this process as a rank. Ends the command where Fabric::open() would refuse what launchers have left.
inline bool is_under_launcher() { return take_from_fabric(fabric::find_launcher()) != fabric::Launcher::none; }

// The rank's number as the launcher wrote it; "0" when nobody says. Rank 0 speaks, also before the fabric is open.
inline std::string rank_by_environment() { return plain(fabric::stated_rank()); }

}  // namespace gigabar::tool::ranks
