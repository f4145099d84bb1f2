// SPDX-License-Identifier: Apache-2.0
#include "doctor/interrupt.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "support/failure.hpp"

namespace gigabar::tool::doctor {
namespace {

std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void end_process(int) {
  static constexpr char kText[] = "\ngigabar doctor: interrupted during a check\n";
  while (write(STDERR_FILENO, kText, sizeof kText - 1) < 0 && errno == EINTR) continue;
  _exit(kExitInterrupted);
}

void begin_ending(int signal) {
  if (is_interrupted.exchange(true)) end_process(signal);
  alarm(1);
}

}  // namespace

Interrupt::Interrupt() : handlers_(begin_ending, SA_RESTART) {
  struct sigaction action{};
  action.sa_handler = end_process;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, &old_alarm_);
}

Interrupt::~Interrupt() {
  alarm(0);
  sigaction(SIGALRM, &old_alarm_, nullptr);
}

void Interrupt::check(std::string_view next_check) {
  if (is_interrupted.load()) throw CommandFailure(kExitInterrupted, fmt::format("interrupted before the check {}", next_check));
}

}  // namespace gigabar::tool::doctor
