// SPDX-License-Identifier: Apache-2.0
// How a command of two ranks begins and ends: its own ranks where no launcher started it, and who speaks when it fails.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ranks/launcher.hpp"
#include "ranks/start.hpp"
#include "ranks/words.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::device_ranks {

// `Session`: made of a plan and the invocation, has run(), rank() and fabric(). `make_plan` ends as bad usage where the command
// line cannot be followed.
template <class Session, class MakePlan>
void run_pair_command(std::string_view command, const MakePlan& make_plan, Invocation& invocation) {
  std::unique_ptr<Session> session;
  try {
    const auto plan = make_plan();
    if (!ranks::is_under_launcher()) {
      ranks::run_local_ranks(2, command, invocation);
      return;
    }
    session = std::make_unique<Session>(plan, invocation);
    session->run();
  } catch (const CommandFailure& failure) {
    const bool is_bad_usage = failure.exit_status() == kExitBadUsage;
    if (session && session->rank() != 0 && is_bad_usage) ranks::let_rank_0_speak(session->fabric());
    ranks::end_rank(failure, session ? std::to_string(session->rank()) : ranks::rank_by_environment(), invocation);
  }
}

}  // namespace gigabar::tool::device_ranks
