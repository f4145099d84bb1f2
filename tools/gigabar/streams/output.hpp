// SPDX-License-Identifier: Apache-2.0
// What is said of the points that were run.
#pragma once

#include <memory>
#include <string_view>

#include "streams/options.hpp"
#include "streams/point.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

// What is printed as text: one class for each --format. This one, of --format json, prints nothing.
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

std::unique_ptr<Output> make_output(Format format, Report& report, const Machine& machine);

// --- The document of --json and --format json: as that of the other commands, with every parameter and every sample --------------

// What stands beside the results.
void describe(const Options& options, Json& document);
void describe(const Machine& machine, Json& document);

// A result. `measure`: its kind, "transfers".
Json point_json(const Point& point, std::string_view measure);
Json preset_json(const PresetRun& run);
Json description_json(const StreamPreset& preset);  // of a list

}  // namespace gigabar::tool::streams
