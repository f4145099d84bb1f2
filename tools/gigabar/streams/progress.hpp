// SPDX-License-Identifier: Apache-2.0
// How far the transfers are, while they run.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "streams/options.hpp"
#include "streams/point.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

// This one shows nothing.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() = default;

  // `position`: "3 of 12", or empty.
  virtual void begin(const Point& /*point*/, const std::string& /*position*/) {}
  virtual void update(unsigned /*repeat*/, std::span<const StreamProgress> /*transfers*/) {}
  // Leaves the terminal as if nothing had been shown.
  virtual void end() {}
};

// CUts' dots, one a second, where the text goes; else, when standard error is a terminal and not where the text goes, bytes and
// rate of every transfer and the time that is left, redrawn in place; else nothing.
std::unique_ptr<Progress> make_progress(const Options& options, Report& report);

}  // namespace gigabar::tool::streams
