// SPDX-License-Identifier: Apache-2.0
// What `gigabar doctor` is asked, and how findings are shown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/doctor.hpp"
#include "support/report.hpp"

namespace gigabar::tool::doctor {

inline constexpr const char* kFromList = "from a list";  // what --symptom without a text stands for

struct Options {
  std::string sysroot;
  std::vector<std::string> only;
  bool is_list = false;
  std::optional<std::string> symptom;  // kFromList: chosen from the list
  bool is_strict = false;
  bool has_probes = true;
  std::string json_path;
  bool is_verbose = false;  // whole blocks for PASS and SKIP too, and every reading
  bool shows_all = false;   // a line for PASS and SKIP
  double most_seconds = 30;
};

// Of a check that was typed; an old name is noted on standard error.
std::string current_id_with_note(std::string_view typed);

// FAIL, WARN and UNKNOWN.
bool wants_reading(Verdict verdict);
// The gravest first.
std::vector<const Finding*> by_gravity(const std::vector<Finding>& findings);

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

// --- --symptom: from what a user saw to the checks that explain it ---------------------------------------------------------------

// What the text says, or the file that it names; without text, the symptom that is chosen from the list on a terminal. Empty: it
// was only asked for the list, which is printed. Ends the command as bad usage, with the list, when nothing is known of the text.
std::optional<Diagnosis> ask_symptom(const Options& options, Report& report);

// In the text and in the document: the telling lines, and for each what it means and what to do.
void tell_diagnosis(Report& report, const Diagnosis& diagnosis);

// Behind the findings: whether they explain the symptom; unless one is a FAIL, what the checks say of it, and what to try next.
void tell_conclusion(Report& report, const Diagnosis& diagnosis, const Examination& examination);

}  // namespace gigabar::tool::doctor
