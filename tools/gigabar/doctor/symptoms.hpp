// SPDX-License-Identifier: Apache-2.0
// --symptom: from what a user saw to the checks that explain it.
#pragma once

#include <optional>

#include "doctor/options.hpp"
#include "gigabar/doctor.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

// What the text says, or the file that it names; without text, the symptom that is chosen from the list on a terminal. Empty: it
// was only asked for the list, which is printed. Ends the command as bad usage, with the list, when nothing is known of the text.
std::optional<Diagnosis> ask_symptom(const Options& options, Report& report);

// The telling lines, and for each what it means and what to do.
void print_diagnosis(Report& report, const Diagnosis& diagnosis);

// Whether one of the findings, of the symptom's checks, is something that is wrong.
bool is_explained(const Examination& examination);

// Behind the findings, unless one is a FAIL: what the checks say of the symptom, and what to try next.
void print_conclusion(Report& report, const Diagnosis& diagnosis, const Examination& examination);

Json to_json(const Diagnosis& diagnosis);

}  // namespace gigabar::tool::doctor
