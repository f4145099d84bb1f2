// SPDX-License-Identifier: Apache-2.0
#include "driver/child_process.hpp"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace gigabar::inline v0 {

std::optional<int> ChildProcess::look() noexcept {
  int status = 0;
  const pid_t ended = ::waitpid(process_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return {};
  process_ = -1;
  return ended > 0 ? status : kUnknown;
}

void ChildProcess::kill() noexcept {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

std::string signal_text(int status) {
  const char* const name = sigabbrev_np(WTERMSIG(status));
  return std::string("SIG") + (name != nullptr ? name : "?");
}

}  // namespace gigabar::inline v0
