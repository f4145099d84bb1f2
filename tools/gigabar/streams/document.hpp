// SPDX-License-Identifier: Apache-2.0
// The JSON document of --json and --format json: as that of the other commands, with every parameter and every sample.
#pragma once

#include <string>

#include "streams/options.hpp"
#include "streams/point.hpp"
#include "support/report.hpp"

namespace gigabar::tool::streams {

class Document {
 public:
  Document(const Options& options, const Invocation& invocation);

  void set_machine(const Machine& machine);
  void add_point(const Point& point);
  void add_preset(const PresetRun& run);
  void add_plan(const Point& point);                 // of a dry run
  void add_description(const StreamPreset& preset);  // of a list
  void note(const std::string& line);

  // To the file of --json, and to standard output for --format json.
  void write();

 private:
  Report report_;
  bool prints_;  // to standard output, beside what --json asks for
};

}  // namespace gigabar::tool::streams
