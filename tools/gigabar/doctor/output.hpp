// SPDX-License-Identifier: Apache-2.0
// How findings are shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/options.hpp"
#include "gigabar/doctor.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

// Of a check that was typed; an old name is noted on standard error.
std::string current_id_with_note(std::string_view typed);

// "  why      ..." with the lines behind the first below its text.
std::string part_of(const char* name, const std::string& text);

// A block for each finding that wants reading, the gravest first; PASS and SKIP as the options say. With a symptom, findings stay
// in the order of its checks and each is at least a line, since a suspect that is cleared tells something too.
void print_findings(Report& report, const Options& options, const std::vector<Finding>& findings);

// "1 FAIL, 2 WARN, 1 UNKNOWN, 37 PASS, 10 SKIP".
std::string counts_text(const Examination& examination);
// "44 checks, 51 findings: 1 FAIL, 2 WARN, 1 UNKNOWN, 37 PASS, 10 SKIP".
void print_summary(Report& report, const Examination& examination);

// For each GPU, the NIC that it should use.
void print_best_nics(Report& report, const Topology& topology);

Json to_json(const Finding& finding);
Json summary_json(const Examination& examination);
Json best_nics_json(const Topology& topology);

}  // namespace gigabar::tool::doctor
