// SPDX-License-Identifier: Apache-2.0
#include "ranks/start.hpp"

#include <fmt/format.h>

#include "ranks/fabric_failure.hpp"
#include "ranks/launcher.hpp"
#include "run/launcher.hpp"
#include "support/output.hpp"

namespace gigabar::tool::ranks {

void run_local_ranks(unsigned rank_count, std::string_view command, Invocation& invocation) {
  run::JobSettings settings;
  settings.path = "/proc/self/exe";
  settings.program = invocation.arguments;
  settings.rank_count = rank_count;
  settings.speaker = fmt::format("gigabar {}", command);
  settings.tells_exits = false;  // a rank that exits has said why
  invocation.exit_status = run::launch(settings);
}

Fabric open_fabric(const FabricOptions& options, const std::string& json_path) {
  if (!json_path.empty() && json_path != "-" && rank_by_environment() == "0") require_writable("--json", json_path);
  return take_from_fabric(Fabric::open(options));
}

void end_rank(const CommandFailure& failure, const std::string& rank, Invocation& invocation) {
  if (rank == "0") throw CommandFailure(failure.exit_status(), failure.what());
  if (failure.exit_status() != kExitBadUsage) {
    throw CommandFailure(failure.exit_status(), fmt::format("rank {}: {}", rank, failure.what()));
  }
  invocation.exit_status = failure.exit_status();
}

}  // namespace gigabar::tool::ranks
