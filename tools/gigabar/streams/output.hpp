// SPDX-License-Identifier: Apache-2.0
// What is printed as text: one class for each --format. (--format json prints the document, and nothing here.)
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "streams/options.hpp"
#include "streams/point.hpp"

namespace gigabar::tool::streams {

// This one prints notes to standard error, and nothing else.
class Output {
 public:
  Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  // Before anything is run.
  virtual void begin(const Machine& /*machine*/, const StreamPlan& /*first*/) {}
  // Around each point.
  virtual void before(const Point& /*point*/) {}
  virtual void after(const Point& /*point*/) {}
  // A whole preset, after its points.
  virtual void preset(const PresetRun& /*run*/) {}
  virtual void note(const std::string& line) { fmt::print(stderr, "note: {}\n", line); }
};

std::unique_ptr<Output> make_table_output(std::FILE* text);
std::unique_ptr<Output> make_cuts_output(std::FILE* text);
std::unique_ptr<Output> make_csv_output(std::FILE* text);

}  // namespace gigabar::tool::streams
