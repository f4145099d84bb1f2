// SPDX-License-Identifier: Apache-2.0
// What is left of a time that a call was given, for the calls that it makes.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

class Remaining {
 public:
  explicit Remaining(const Timeout& timeout) noexcept : timeout_(timeout), begin_ns_(now_ns()) {}
  Timeout left() const noexcept {
    if (timeout_.is_forever()) return timeout_;
    return Timeout::of(std::chrono::nanoseconds(timeout_.ns() - (now_ns() - begin_ns_)));
  }

 private:
  Timeout timeout_;
  std::int64_t begin_ns_;
};

}  // namespace gigabar::inline v0
