// The options with which every command between ranks chooses transports, paths, rails and limits: FabricOptions under the same
// names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"

namespace gigabar::tool::ranks {

struct FabricSettings {
  FabricOptions options;
  std::vector<std::string> required, preferred, forbidden;  // names of paths, as typed
  double timeout_seconds = 30;                              // of one wait

  Timeout timeout() const noexcept;
};

// --transport, --require, --prefer, --forbid, --gdr-limit, --gdr-read-limit, --eager-limit, --chunk, --chunks, --rails,
// --rail-count,
// --rail-policy, --stripe, --timeout.
void add_fabric_options(CLI::App& command, FabricSettings& settings);

// What the options say together. Ends the command as bad usage when a path is named twice, or more than one is required.
FabricOptions fabric_options(const FabricSettings& settings);

}  // namespace gigabar::tool::ranks
