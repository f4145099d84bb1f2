// SPDX-License-Identifier: Apache-2.0
// What is printed as text: one class for each --format. (--format json prints the document, and nothing here.)
#pragma once

#include <memory>

#include "streams/point.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

// This one prints nothing.
class Output {
 public:
  Output(Report& report, const Machine& machine) : report_(report), machine_(machine) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  // Before anything is run.
  virtual void begin(const StreamPlan& /*first*/) {}
  // Around each point, and now and then in it.
  virtual void before(const Point& /*point*/) {}
  virtual void during() {}
  virtual void after(const Point& /*point*/) {}
  // A whole preset, after its points.
  virtual void preset(const PresetRun& /*run*/) {}

 protected:
  Report& report_;
  const Machine& machine_;
};

std::unique_ptr<Output> make_table_output(Report& report, const Machine& machine);
std::unique_ptr<Output> make_cuts_output(Report& report, const Machine& machine);
std::unique_ptr<Output> make_csv_output(Report& report, const Machine& machine);

}  // namespace gigabar::tool::streams
