// SPDX-License-Identifier: Apache-2.0
// A child of this process, for work that may crash or never end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.hpp"

namespace gigabar::inline v0 {

// Ended with its owner, unless it has been waited for.
class ChildProcess {
 public:
  // waitpid()'s status, or that it is not known: somebody else in this process has waited for it, or the process ignores SIGCHLD.
  static constexpr int kUnknown = -1;

  ChildProcess() = default;
  explicit ChildProcess(pid_t process) noexcept : process_(process) {}
  ChildProcess(ChildProcess&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    ChildProcess moved(std::move(other));
    std::swap(process_, moved.process_);
    return *this;
  }
  ~ChildProcess() { kill(); }

  pid_t number() const noexcept { return process_; }

  // How it ended. Nothing: it had not when `is_over()` was true, and was ended here.
  template <class IsOver>
  std::optional<int> end_when(const IsOver& is_over) noexcept {
    std::optional<int> status = look();
    for (; !status && !is_over(); status = look()) ::usleep(500);
    if (!status) kill();
    return status;
  }
  // `at_ns`: of now_ns()'s clock.
  std::optional<int> end_by(std::int64_t at_ns) noexcept {
    return end_when([at_ns] { return now_ns() >= at_ns; });
  }

 private:
  // How it has ended, if it has.
  std::optional<int> look() noexcept;
  void kill() noexcept;
  pid_t process_ = -1;
};

// "SIGABRT", of a status that tells of a signal.
std::string signal_text(int status);

}  // namespace gigabar::inline v0
