// SPDX-License-Identifier: Apache-2.0
// Runs a function in a forked child.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

namespace gigabar::test {

struct ChildEnd {
  bool was_signalled;
  int number;  // of the signal, or the exit status

  bool is_exit(int status) const noexcept { return !was_signalled && number == status; }
  bool is_fault() const noexcept { return was_signalled && (number == SIGSEGV || number == SIGBUS); }
  std::string to_string() const { return (was_signalled ? "signal " : "exit status ") + std::to_string(number); }
};

// The exit status is what `body` returns, or 99 when it throws. The child has default signal actions, no core file and 20 s;
// `meanwhile` runs in the parent.
inline ChildEnd run_in_child(const std::function<int()>& body, const std::function<void()>& meanwhile = {}) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    const rlimit none = {0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGALRM}) ::signal(number, SIG_DFL);
    ::alarm(20);
    int status = 99;
    try {
      status = body();
    } catch (...) {  // the child must not go on as the parent's double
    }
    ::_exit(status);
  }
  if (meanwhile) meanwhile();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

}  // namespace gigabar::test
