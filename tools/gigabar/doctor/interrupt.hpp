// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP while checks run: the examination is left at the next check, so that what it made is tidied up; when a
// check holds it for more than a second, the process ends where it is. The exit status is 130 either way.
#pragma once

#include <csignal>
#include <string_view>

#include "support/signal_handlers.hpp"

namespace gigabar::tool::doctor {

inline constexpr int kExitInterrupted = 130;

// While one lives. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Called between checks. Ends the command when a signal has come.
  static void check(std::string_view next_check);

 private:
  struct sigaction old_alarm_{};
  EndHandlers handlers_;
};

}  // namespace gigabar::tool::doctor
