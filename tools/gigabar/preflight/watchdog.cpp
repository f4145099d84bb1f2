// SPDX-License-Identifier: Apache-2.0
#include "preflight/watchdog.hpp"

#include <chrono>
#include <utility>

namespace gigabar::tool::preflight {

Watchdog::Watchdog(double seconds, std::function<void(const std::string& step)> expired)
    : thread_([this, seconds, expired = std::move(expired)] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_over_; })) expired(step_);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::begin(std::string step) {
  const std::lock_guard lock(mutex_);
  step_ = std::move(step);
}

}  // namespace gigabar::tool::preflight
