// SPDX-License-Identifier: Apache-2.0
// A lock that is given in the order in which it was asked for. One thread that takes it again and again must not keep it from
// another, as an ordinary mutex would let it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace gigabar::fabric {

// The atomics are a parameter so that a test can delay their stores as a processor does.
template <template <class> class Atomic>
class BasicFairMutex {
 public:
  void lock() noexcept {
    const std::uint32_t ticket = next_.fetch_add(1, std::memory_order_seq_cst);
    for (unsigned turn = 0;; ++turn) {
      const std::uint32_t serving = serving_.load(std::memory_order_seq_cst);
      if (serving == ticket) return;
      if (turn >= kSpins) serving_.wait(serving, std::memory_order_seq_cst);
    }
  }
  // Either this thread sees the other's ticket, or the other sees this store: both accesses on both sides are seq_cst, because a
  // processor may let a load overtake an earlier store of another word, and nobody would wake the other then.
  void unlock() noexcept {
    const std::uint32_t next = serving_.load(std::memory_order_relaxed) + 1;
    serving_.store(next, std::memory_order_seq_cst);
    if (next_.load(std::memory_order_seq_cst) != next) serving_.notify_all();
  }

 private:
  static constexpr unsigned kSpins = 100;
  Atomic<std::uint32_t> next_{0};
  Atomic<std::uint32_t> serving_{0};
};

// A thread that comes while the lock is free takes it, also before those that wait: in strict order each call of two threads that
// compete costs a switch between them, milliseconds each on a busy machine. When the first of those that wait has waited for
// kMaxOvertakenNs, nobody overtakes it any more.
class FairMutex {
 public:
  void lock() noexcept {
    if (is_overdue_.load(std::memory_order_relaxed) || held_.exchange(1, std::memory_order_acquire) != 0) wait_and_lock();
  }
  // Either this thread sees the waiting one, or that one sees this store.
  void unlock() noexcept {
    held_.store(0, std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst) == 0) return;
    releases_.fetch_add(1, std::memory_order_seq_cst);
    releases_.notify_one();  // only the first in order looks at it
  }

 private:
  static constexpr std::int64_t kMaxOvertakenNs = 1'000'000;
  static constexpr unsigned kSpins = 100;

  void wait_and_lock() noexcept {
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    order_.lock();
    const std::int64_t begin_ns = now_ns();
    for (unsigned turn = 0;; ++turn) {
      const std::uint32_t releases = releases_.load(std::memory_order_seq_cst);
      if (held_.exchange(1, std::memory_order_seq_cst) == 0) break;
      if (now_ns() - begin_ns > kMaxOvertakenNs) is_overdue_.store(true, std::memory_order_relaxed);
      if (turn >= kSpins) releases_.wait(releases, std::memory_order_seq_cst);
    }
    is_overdue_.store(false, std::memory_order_relaxed);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    order_.unlock();
  }

  std::atomic<std::uint32_t> held_{0}, waiting_{0};
  // How often it was given on while somebody waited. Who waits sleeps until this changes: waiting for `held_` would not end when
  // another thread has taken it again by the time this one wakes, however late it is.
  std::atomic<std::uint32_t> releases_{0};
  std::atomic<bool> is_overdue_{false};
  BasicFairMutex<std::atomic> order_;  // of those that wait
};

}  // namespace gigabar::fabric
