// SPDX-License-Identifier: Apache-2.0
// How a command between ranks begins and ends: its own ranks where no launcher started it, and who speaks when it fails.
#pragma once

#include <string>
#include <string_view>

#include "gigabar/fabric.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"

namespace gigabar::tool::ranks {

// Starts `rank_count` ranks of this same command on this host and waits for them.
void run_local_ranks(unsigned rank_count, std::string_view command, Invocation& invocation);

// Joins the job. Rank 0, which writes the report, first ends the command where it cannot be written.
Fabric open_fabric(const FabricOptions& options, const std::string& json_path);

// Ends this rank as `failure` says. Only rank 0 says how the command line cannot be followed: it is the same one everywhere.
void end_rank(const CommandFailure& failure, const std::string& rank, Invocation& invocation);

}  // namespace gigabar::tool::ranks
