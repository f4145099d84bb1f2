// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP while transfers run: a flag that ends them after the copies in flight. The second signal ends the
// process as if nobody listened.
#pragma once

#include <atomic>

#include "support/signal_handlers.hpp"

namespace gigabar::tool::streams {

inline std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

// While one lives, the signals set the flag; afterwards they do what they did before. One at a time.
class Interrupt {
 public:
  Interrupt() : handlers_([](int) { is_interrupted.store(true); }, SA_RESTART | static_cast<int>(SA_RESETHAND)) {}

  static const std::atomic<bool>& flag() noexcept { return is_interrupted; }
  static bool is_set() noexcept { return is_interrupted.load(); }

 private:
  EndHandlers handlers_;
};

}  // namespace gigabar::tool::streams
