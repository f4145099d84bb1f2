// SPDX-License-Identifier: Apache-2.0
// A driver that hangs holds the thread that called it, whatever that thread's own limits are. This one calls a function in its
// stead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace gigabar::tool::preflight {

class Watchdog {
 public:
  // After `seconds`, unless this object is gone by then, a thread of its own calls `expired` with what was done last.
  Watchdog(double seconds, std::function<void(const std::string& step)> expired)
      : thread_([this, seconds, expired = std::move(expired)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_over_; })) expired(step_);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void begin(std::string step) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::string step_ = "the start";
  std::thread thread_;
};

}  // namespace gigabar::tool::preflight
