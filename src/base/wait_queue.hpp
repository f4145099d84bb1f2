// SPDX-License-Identifier: Apache-2.0
// Threads that wait for what one thread at a time can have. They are served in the order in which they came, each within its
// deadline.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.hpp"
#include "base/remaining.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

// A thread that comes while nobody has it takes it, also before those that wait: in strict order each call of two threads that
// compete costs a switch between them, milliseconds each on a busy machine. When the first of those that wait has been the first
// for kMaxOvertakenNs, nobody overtakes it any more: who comes asks is_overdue() before.
class WaitQueue {
 public:
  // Threads: any, without the lock.
  bool is_overdue() const noexcept { return is_overdue_.load(std::memory_order_relaxed); }

  // Waits until `try_take()` returns true; false: the time was over first. The caller has `lock`; it is released while the thread
  // sleeps, and held when `try_take` is called. Allocates nothing.
  template <class Lock, class TryTake>
  bool wait(Lock& lock, const Timeout& timeout, const TryTake& try_take) noexcept {
    const Uncancelled uncancelled;
    const Remaining time(timeout);
    Waiter self;
    append(self);
    std::int64_t first_since_ns = 0;
    bool is_taken = false;
    for (;;) {
      if (first_ == &self) {
        is_taken = try_take();
        if (is_taken) break;
        const std::int64_t now = now_ns();
        if (first_since_ns == 0) first_since_ns = now;
        if (now - first_since_ns > kMaxOvertakenNs) is_overdue_.store(true, std::memory_order_relaxed);
      }
      const Timeout left = time.left();
      if (!left.is_forever() && left.ns() == 0) break;
      lock.unlock();
      self.sleep(left);
      lock.lock();
    }
    remove(self);
    return is_taken;
  }

  // Wakes the first of those that wait: `try_take` may succeed now. The caller has the lock.
  void wake() noexcept {
    if (first_ != nullptr) first_->call();
  }

 private:
  static constexpr std::int64_t kMaxOvertakenNs = 1'000'000;

  class Waiter {
   public:
    void call() noexcept {
      const std::lock_guard lock(mutex_);
      if (is_called_) return;
      is_called_ = true;
      changed_.notify_one();
    }
    void sleep(const Timeout& timeout) noexcept {
      constexpr std::chrono::nanoseconds kMost = std::chrono::hours(1);  // far ahead, a time point would overflow
      std::unique_lock lock(mutex_);
      const auto most = timeout.is_forever() ? kMost : std::min(kMost, std::chrono::nanoseconds(timeout.ns()));
      changed_.wait_for(lock, most, [this] { return is_called_; });
      is_called_ = false;
    }
    Waiter* next = nullptr;

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_called_ = false;
  };

  void append(Waiter& waiter) noexcept {
    Waiter** place = &first_;
    while (*place != nullptr) place = &(*place)->next;
    *place = &waiter;
  }
  void remove(Waiter& waiter) noexcept {
    if (first_ == &waiter) is_overdue_.store(false, std::memory_order_relaxed);
    Waiter** place = &first_;
    while (*place != &waiter) place = &(*place)->next;
    *place = waiter.next;
  }

  Waiter* first_ = nullptr;  // in the order in which they came
  std::atomic<bool> is_overdue_{false};
};

}  // namespace gigabar::inline v0
