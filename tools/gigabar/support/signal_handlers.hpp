// SPDX-License-Identifier: Apache-2.0
// Handlers of what asks a command to end: SIGINT (Ctrl-C), SIGTERM (a batch system, a time limit) and SIGHUP (a terminal that
// closed).
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace gigabar::tool {

// While one lives; afterwards the signals do what they did before. A signal that is ignored (a job of nohup, or in the background
// of a script) stays ignored.
class EndHandlers {
 public:
  EndHandlers(void (*handler)(int), int flags) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~EndHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
  }
  EndHandlers(const EndHandlers&) = delete;
  EndHandlers& operator=(const EndHandlers&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_{};
};

}  // namespace gigabar::tool
