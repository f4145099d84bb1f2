// SPDX-License-Identifier: Apache-2.0
// Monotonic time and deadlines. Every wait in Gigabar has one.
#pragma once

#include <cstdint>
#include <ctime>

namespace gigabar::inline v0 {

inline std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Deadline {
 public:
  static Deadline after_ns(std::int64_t duration_ns) noexcept { return Deadline(now_ns() + duration_ns); }
  bool has_passed() const noexcept { return now_ns() >= at_ns_; }

 private:
  explicit Deadline(std::int64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace gigabar::inline v0
