// SPDX-License-Identifier: Apache-2.0
// How a command ends early: one line that names the argument, the cause and the remedy, and the exit status. What asks it to end:
// SIGINT (Ctrl-C), SIGTERM (a batch system, a time limit) and SIGHUP (a terminal that closed).
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/in_place.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool {

inline constexpr int kExitFailed = 1;         // the command ran and what it did or found is wrong
inline constexpr int kExitBadUsage = 2;       // the command line cannot be followed; nothing was run
inline constexpr int kExitInterrupted = 130;  // as a shell counts SIGINT

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

// While one lives, the signals set a flag; afterwards they do what they did before. A signal that is ignored (a job of nohup, or in
// the background of a script) stays ignored. One at a time.
class Interrupt : InPlace {
 public:
  // The second signal ends the process as if nobody listened.
  Interrupt() : Interrupt([](int) { set(); }, static_cast<int>(SA_RESETHAND)) {}
  // `handler` calls set().
  Interrupt(void (*handler)(int), int flags) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | flags;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~Interrupt() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
  }

  static const std::atomic<bool>& flag() noexcept { return signal_came; }
  static bool is_set() noexcept { return signal_came.load(); }
  static bool set() noexcept { return signal_came.exchange(true); }  // whether it was set before

 private:
  static inline std::atomic<bool> signal_came{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_{};
};

}  // namespace gigabar::tool
