// SPDX-License-Identifier: Apache-2.0
// A lock that one thread, which takes it again and again, cannot keep from the others as an ordinary mutex would let it. They are
// served as wait_queue.hpp says.
#pragma once

#include <atomic>
#include <mutex>

#include "base/wait_queue.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

class FairMutex {
 public:
  void lock() noexcept { lock_within(Timeout::forever()); }
  // False: the time was over first.
  bool lock_within(const Timeout& timeout) noexcept { return try_lock() || wait_and_take(timeout); }
  // False: another thread has it, or is to get it.
  bool try_lock() noexcept { return !waiting_.is_overdue() && try_take(); }
  // Either this thread sees the waiting one, or that one sees this store: both accesses on both sides are seq_cst, because a
  // processor may let a load overtake an earlier store of another word, and nobody would wake the other then.
  void unlock() noexcept {
    is_taken_.store(false, std::memory_order_seq_cst);
    if (waiting_count_.load(std::memory_order_seq_cst) != 0) wake();
  }

 private:
  static constexpr unsigned kSpins = 100;

  bool try_take() noexcept { return !is_taken_.exchange(true, std::memory_order_seq_cst); }
  bool wait_and_take(const Timeout& timeout) noexcept {
    // It is mostly given on sooner than a thread falls asleep.
    for (unsigned spin = 0; spin < kSpins && !waiting_.is_overdue(); ++spin) {
      if (!is_taken_.load(std::memory_order_relaxed) && try_take()) return true;
    }
    std::unique_lock lock(mutex_);
    waiting_count_.fetch_add(1, std::memory_order_seq_cst);
    const bool is_taken = waiting_.wait(lock, timeout, [this] { return try_take(); });
    waiting_count_.fetch_sub(1, std::memory_order_relaxed);
    return is_taken;
  }
  void wake() noexcept {
    const std::scoped_lock lock(mutex_);
    waiting_.wake();
  }

  std::atomic<bool> is_taken_{false};
  std::atomic<unsigned> waiting_count_{0};
  std::mutex mutex_;
  WaitQueue waiting_;  // under the mutex
};

// Owns nothing: the time was over first.
inline std::unique_lock<FairMutex> lock_within(FairMutex& mutex, const Timeout& timeout) noexcept {
  return mutex.lock_within(timeout) ? std::unique_lock(mutex, std::adopt_lock) : std::unique_lock<FairMutex>();
}

}  // namespace gigabar::inline v0
