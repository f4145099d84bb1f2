// SPDX-License-Identifier: Apache-2.0
// How machines and findings are shown, in `gigabar doctor` and in the commands that examine a machine too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gigabar/doctor.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

// Of a check that was typed; an old name is noted on standard error.
std::string current_id_with_note(std::string_view typed);

// FAIL, WARN and UNKNOWN.
bool wants_reading(Verdict verdict);
// The gravest first.
std::vector<Finding> by_gravity(std::vector<Finding> findings);
// "1 FAIL, 2 WARN, 1 UNKNOWN, 37 PASS, 10 SKIP".
std::string counts_text(const Examination& examination);

// For each GPU, the NIC that it should use: prints it, and returns it for the document.
Json tell_best_nics(Report& report, const Topology& topology);

// By the names of docs/schema, with texts that are plain(): numbers are numbers, and what is not known is null.
Json to_json(const Finding& finding);
Json to_json(const Topology& topology);
Json summary_json(const Examination& examination);

}  // namespace gigabar::tool::doctor
