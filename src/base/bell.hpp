// SPDX-License-Identifier: Apache-2.0
// A descriptor that one thread signals and another sleeps on (eventfd); signals add up until they are taken. And the bell that is
// made of one.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/descriptor.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::inline v0 {

// Not open where the process has no descriptor left; errno says so.
inline Descriptor open_event() noexcept { return Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void signal_event(const Descriptor& event) noexcept {
  const Uncancelled uncancelled;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

inline void take_event(const Descriptor& event) noexcept {
  const Uncancelled uncancelled;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof count);
}

// Wakes a thread where it sleeps. However often it is rung, the kernel is asked once for each sleep: to write to the descriptor
// each time until the thread runs takes longer than what it is rung for.
class Bell {
 public:
  // False, with errno set: the process has no descriptor left.
  bool open() noexcept {
    descriptor_ = open_event();
    return descriptor_.is_open();
  }
  int descriptor() const noexcept { return descriptor_.get(); }
  // From now on ring() makes the descriptor readable; what came before must be looked for afterwards.
  void arm() noexcept {
    was_armed_ = true;
    is_armed_.store(true, std::memory_order_seq_cst);
  }
  void disarm() noexcept {
    if (!std::exchange(was_armed_, false)) return;
    is_armed_.store(false, std::memory_order_seq_cst);
    take_event(descriptor_);  // a ring() under way may write after this: see clear()
  }
  // Where the descriptor is readable although the bell is not armed.
  void clear() noexcept { take_event(descriptor_); }
  // Threads: any.
  void ring() noexcept {
    if (is_armed_.load(std::memory_order_seq_cst) && is_armed_.exchange(false, std::memory_order_seq_cst))
      signal_event(descriptor_);
  }

 private:
  bool was_armed_ = false;  // since the last disarm()
  std::atomic<bool> is_armed_{false};
  Descriptor descriptor_;
};

}  // namespace gigabar::inline v0
