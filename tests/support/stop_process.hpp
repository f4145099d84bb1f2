// SPDX-License-Identifier: Apache-2.0
// Stops a child process, all of it.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

namespace gigabar::test {

// Returns when no thread of this child runs any more; false when it has not stopped within ten seconds. The signal is taken by one
// thread, which may have to wait for a processor before it stops the others: until then they go on with their work.
inline bool stop_process(pid_t child) {
  if (::kill(child, SIGSTOP) != 0) return false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    siginfo_t state{};
    if (::waitid(P_PID, static_cast<id_t>(child), &state, WSTOPPED | WNOHANG) != 0 && errno != EINTR) return false;
    if (state.si_pid == child) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace gigabar::test
