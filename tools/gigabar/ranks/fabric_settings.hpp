// SPDX-License-Identifier: Apache-2.0
// The options with which every command between ranks chooses transports, paths, rails and limits: FabricOptions under the same
// names.
#pragma once

#include <string>
#include <vector>

#include "gigabar/fabric.hpp"
#include "support/options.hpp"

namespace gigabar::tool::ranks {

struct FabricSettings {
  FabricOptions options;                                    // once they are settled, all that is asked for
  std::vector<std::string> required, preferred, forbidden;  // names of paths, as typed
  double timeout_seconds = 30;                              // of one wait

  Timeout timeout() const noexcept;
};

inline constexpr const char* kTimeoutOfAWait =
    "Of one wait (for a rank, a connection, a message), not of the whole run: one that takes longer ends the run";

// --transport, --require, --prefer, --forbid, --gdr-limit, --gdr-read-limit, --eager-limit, --kernel-limit, --chunk, --chunks,
// --stripe, --rails, --rail-count, --rail-policy, --cpus, --timeout; `timeout_help`: what that is of.
void add_fabric_options(const Command& command, FabricSettings& settings, const char* timeout_help = kTimeoutOfAWait);

// What the options say together, settled. Ends the command as bad usage when a path is named twice, more than one is required, or a
// CPU may not be used.
FabricOptions fabric_options(const FabricSettings& settings);

// Keeps the calling thread, and with it what it allocates from now on, where the fabric's own threads are.
void follow_cpus(const Fabric& fabric);

}  // namespace gigabar::tool::ranks
