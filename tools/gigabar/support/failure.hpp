// SPDX-License-Identifier: Apache-2.0
// How a command ends early: one line that names the argument, the cause and the remedy, and the exit status. Handlers of what asks
// it to end: SIGINT (Ctrl-C), SIGTERM (a batch system, a time limit) and SIGHUP (a terminal that closed).
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/in_place.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool {

inline constexpr int kExitFailed = 1;    // the command ran and what it did or found is wrong
inline constexpr int kExitBadUsage = 2;  // the command line cannot be followed; nothing was run

class CommandFailure : public std::runtime_error {
 public:
  CommandFailure(int exit_status, const std::string& message) : std::runtime_error(message), exit_status_(exit_status) {}
  int exit_status() const noexcept { return exit_status_; }

 private:
  int exit_status_;
};

// A copy delivered other bytes than it was given.
class WrongData : public CommandFailure {
 public:
  explicit WrongData(const std::string& message) : CommandFailure(kExitFailed, message) {}
};

[[noreturn]] inline void fail(const std::string& message) { throw CommandFailure(kExitFailed, message); }
[[noreturn]] inline void refuse_usage(const std::string& message) { throw CommandFailure(kExitBadUsage, message); }

// The value, or the command's end with the error's own line.
template <class T>
T take(Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(result).value();
}

inline void require(const Result<void>& outcome) {
  if (!outcome) fail(outcome.message());
}

// While one lives; afterwards the signals do what they did before. A signal that is ignored (a job of nohup, or in the background
// of a script) stays ignored.
class EndHandlers : InPlace {
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

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_{};
};

}  // namespace gigabar::tool
