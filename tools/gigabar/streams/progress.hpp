// SPDX-License-Identifier: Apache-2.0
// How far the transfers are, while they run.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "streams/point.hpp"

namespace gigabar::tool::streams {

// Bytes and rate of every transfer and the time that is left, redrawn in place on standard error.
class Progress {
 public:
  explicit Progress(bool is_shown) : is_shown_(is_shown) {}

  // `position`: "3 of 12", or empty.
  void begin(const Point& point, const std::string& position);
  void update(unsigned repeat, std::span<const StreamProgress> transfers);
  // Leaves the terminal as if nothing had been shown.
  void end() { show({}); }

 private:
  std::string time_left(unsigned repeat, std::span<const StreamProgress> transfers);
  std::string line_of(const StreamProgress& transfer) const;
  void show(const std::vector<std::string>& lines);

  bool is_shown_;
  std::string title_;
  std::vector<std::string> names_;
  std::size_t name_width_ = 0;
  unsigned repeat_count_ = 0;
  std::chrono::steady_clock::time_point began_;  // the first repeat's first report
  std::size_t line_count_ = 0;                   // that are shown
};

}  // namespace gigabar::tool::streams
