// SPDX-License-Identifier: Apache-2.0
// The forms of the answer: for people, and for the programs that ask at the start of a job.
#pragma once

#include <cstdint>
#include <string>

#include "preflight/judge.hpp"
#include "support/report.hpp"

namespace gigabar::tool::preflight {

enum class Format : std::uint8_t {
  table,
  json,
  npd,         // Node Problem Detector's custom plugin monitor: a line, and 0, 1 or 2 for what is unknown
  nhc,         // LBNL Node Health Check: a line, and not 0 only for what is unfit
  prometheus,  // OpenMetrics, as node_exporter's textfile collector reads it
};

inline constexpr int kExitUnknown = 3;
int exit_status_of(State state, Format format, bool is_strict);

// The answer first, then what is not fit, each with its remedy, then every path.
void print_table(Report& report, const Judgement& judgement);
Json to_json(const Item& item);

struct Metrics {
  double elapsed_seconds = 0;
  double time_seconds = 0;  // since 1970
  bool is_stand_in = false;
};
std::string metrics_text(const Judgement& judgement, const Metrics& metrics);

}  // namespace gigabar::tool::preflight
