// SPDX-License-Identifier: Apache-2.0
// Sleeps that end only when another thread or rank ends them. The library limits each of its sleeps, so that a wake-up that is lost
// costs a tenth of a second; here it costs the wait. A program that is to have them is linked with long_sleeps.cpp, which replaces
// epoll_wait() and pthread_cond_clockwait() of the whole program.
#pragma once

namespace gigabar::test {

// While this lives, a sleep of 50 ms or more lasts until something ends it, or until 30 s are over: longer than kPatience.
class LongSleeps {
 public:
  LongSleeps();
  ~LongSleeps();
  LongSleeps(const LongSleeps&) = delete;
  LongSleeps& operator=(const LongSleeps&) = delete;

  // How many were begun, on descriptors and on condition variables.
  unsigned on_descriptors() const;
  unsigned on_conditions() const;
};

}  // namespace gigabar::test
