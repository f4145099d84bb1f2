// SIGINT and SIGTERM while transfers run: a flag that ends them after the copies in flight. The second signal ends the process as
// if nobody listened.
#pragma once

#include <atomic>
#include <csignal>

namespace gigabar::tool::streams {

// While one lives, the signals set the flag; afterwards they do what they did before. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static const std::atomic<bool>& flag() noexcept;
  static bool is_set() noexcept { return flag().load(); }

 private:
  struct sigaction old_interrupt_{};
  struct sigaction old_terminate_{};
};

}  // namespace gigabar::tool::streams
