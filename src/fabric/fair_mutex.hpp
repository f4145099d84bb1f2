// SPDX-License-Identifier: Apache-2.0
// A lock that is given in the order in which it was asked for. One thread that takes it again and again must not keep it from
// another, as an ordinary mutex would let it.
#pragma once

#include <atomic>
#include <cstdint>

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

using FairMutex = BasicFairMutex<std::atomic>;

}  // namespace gigabar::fabric
