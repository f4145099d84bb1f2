// A lock that is given in the order in which it was asked for. One thread that takes it again and again must not keep it from
// another, as an ordinary mutex would let it.
#pragma once

#include <atomic>
#include <cstdint>

namespace gigabar::fabric {

class FairMutex {
 public:
  void lock() noexcept {
    const std::uint32_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
    for (unsigned turn = 0;; ++turn) {
      const std::uint32_t serving = serving_.load(std::memory_order_acquire);
      if (serving == ticket) return;
      if (turn >= kSpins) serving_.wait(serving, std::memory_order_acquire);
    }
  }
  void unlock() noexcept {
    const std::uint32_t next = serving_.load(std::memory_order_relaxed) + 1;
    serving_.store(next, std::memory_order_release);
    if (next_.load(std::memory_order_seq_cst) != next) serving_.notify_all();
  }

 private:
  static constexpr unsigned kSpins = 100;
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::uint32_t> serving_{0};
};

}  // namespace gigabar::fabric
