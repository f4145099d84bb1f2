// SPDX-License-Identifier: Apache-2.0
// A child of this process, for work that may crash or never end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gigabar {

// Ended with its owner, unless it has been waited for.
class ChildProcess {
 public:
  // waitpid()'s status, or that somebody else in this process has waited for it.
  static constexpr int kUnknown = -1;

  ChildProcess() = default;
  explicit ChildProcess(pid_t process) noexcept : process_(process) {}
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // How it ended. Nothing: it had not by `at_ns` (now_ns()'s clock), and was ended here.
  std::optional<int> end_by(std::int64_t at_ns) noexcept;

 private:
  void kill() noexcept;
  pid_t process_ = -1;
};

// "SIGABRT", of a status that tells of a signal.
std::string signal_text(int status);

}  // namespace gigabar
