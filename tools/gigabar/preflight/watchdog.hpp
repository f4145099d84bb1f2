// SPDX-License-Identifier: Apache-2.0
// A driver that hangs holds the thread that called it, whatever that thread's own limits are. This one calls a function in its
// stead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace gigabar::tool::preflight {

class Watchdog {
 public:
  // After `seconds`, unless this object is gone by then, a thread of its own calls `expired` with what was done last.
  Watchdog(double seconds, std::function<void(const std::string& step)> expired)
      : thread_([this, seconds, expired = std::move(expired)](const std::stop_token& end) {
          std::unique_lock lock(mutex_);
          ended_.wait_for(lock, end, std::chrono::duration<double>(seconds), [] { return false; });
          if (!end.stop_requested()) expired(step_);
        }) {}

  void begin(std::string step) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::string step_ = "the start";
  std::jthread thread_;  // the last member: asked to end, and joined, before the others are gone
};

}  // namespace gigabar::tool::preflight
