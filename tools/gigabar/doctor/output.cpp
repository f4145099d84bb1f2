// SPDX-License-Identifier: Apache-2.0
#include "doctor/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>

#include "base/counted.hpp"
#include "base/old_check_ids.hpp"
#include "base/options.hpp"
#include "doctor/document.hpp"
#include "doctor/members.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/names.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::doctor {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kMaxReadingsShown = 8;
// From what has to be done to what needs nothing, with colours of a terminal (ECMA-48, SGR): red, yellow, magenta, green, and dim.
constexpr std::array<Named<Verdict>, 5> kOrder = {{{Verdict::fail, "\x1b[1;31m"},
                                                   {Verdict::warn, "\x1b[1;33m"},
                                                   {Verdict::unknown, "\x1b[1;35m"},
                                                   {Verdict::pass, "\x1b[32m"},
                                                   {Verdict::skip, "\x1b[2m"}}};

std::string verdict_text(const Report& report, Verdict verdict) {
  const std::string name = fmt::format("{:<7}", name_of(verdict));
  return report.has_colours() ? fmt::format("{}{}\x1b[0m", name_in(kOrder, verdict), name) : name;
}

std::string head_of(const Report& report, const Finding& finding) {
  const std::string subject = finding.subject.empty() ? "" : ": " + plain(finding.subject, 200);
  return fmt::format("{} {}{}", verdict_text(report, finding.verdict), plain(finding.check, 64), subject);
}

std::string readings_of(const Options& options, const Finding& finding) {
  std::string text;
  const std::size_t shown = options.is_verbose ? finding.readings.size() : std::min(finding.readings.size(), kMaxReadingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const Reading& reading = finding.readings[i];
    // Not wrapped: a path and its value are there to be copied.
    text += fmt::format("  {:<8}{} = {}\n", i == 0 ? "read" : "", plain(reading.source, 300), plain(reading.value, 300));
  }
  if (shown < finding.readings.size()) text += fmt::format("          and {} more (--verbose)\n", finding.readings.size() - shown);
  return text;
}

// "  why      ..." with the lines behind the first below its text.
std::string part_of(const char* name, const std::string& text) {
  constexpr std::size_t kMargin = 10;
  std::string lines = wrapped(text, kWidth, kMargin);
  const std::string label = fmt::format("  {:<{}}", name, kMargin - 2);
  if (lines.size() > kMargin) lines.replace(0, kMargin, label);
  return lines;
}

// `above` is the block before, or null: what stands there already is not said again for the next subject of the same check.
void print_block(Report& report, const Options& options, const Finding& finding, const Finding* above) {
  const CheckInfo* const check = find_check(finding.check);
  const bool is_next = above != nullptr && above->check == finding.check && wants_reading(above->verdict);
  std::string text = head_of(report, finding) + "\n";
  text += wrapped(plain(finding.statement), kWidth, 2);
  text += readings_of(options, finding);
  if (check != nullptr && wants_reading(finding.verdict) && !is_next) text += part_of("why", plain(check->why));
  const std::string remedy = plain(finding.remedy) + (finding.needs_reboot ? " (needs a reboot)" : "");
  const bool is_same = is_next && above->remedy == finding.remedy && above->needs_reboot == finding.needs_reboot;
  if (!finding.remedy.empty()) text += part_of("remedy", is_same ? "as above" : remedy);
  report.print("{}\n", text);
}

}  // namespace

std::string current_id_with_note(std::string_view typed) {
  std::string current = current_check_id(typed);
  if (current != typed) fmt::print(stderr, "note: the check {} is called {} now\n", plain(typed, 100), plain(current, 100));
  return current;
}

bool wants_reading(Verdict verdict) { return verdict == Verdict::fail || verdict == Verdict::warn || verdict == Verdict::unknown; }

std::vector<const Finding*> by_gravity(const std::vector<Finding>& findings) {
  std::vector<const Finding*> sorted;
  for (const auto& [verdict, colour] : kOrder) {
    for (const Finding& finding : findings) {
      if (finding.verdict == verdict) sorted.push_back(&finding);
    }
  }
  return sorted;
}

void print_findings(Report& report, const Options& options, const std::vector<Finding>& findings) {
  std::vector<const Finding*> shown = by_gravity(findings);
  if (options.symptom) std::ranges::transform(findings, shown.begin(), [](const Finding& each) { return &each; });  // as they are
  const Finding* above = nullptr;  // the last one that has a block
  for (const Finding* const finding : shown) {
    if (wants_reading(finding->verdict) || options.is_verbose) {
      print_block(report, options, *finding, std::exchange(above, finding));
    } else if (options.shows_all || options.symptom) {
      report.print("{}: {}\n", head_of(report, *finding), plain(finding->statement, 300));
    }
  }
}

std::string counts_text(const Examination& examination) {
  std::string counts;
  for (const auto& [verdict, colour] : kOrder) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", examination.count(verdict), name_of(verdict));
  }
  return counts;
}

void print_summary(Report& report, const Examination& examination) {
  const std::size_t checked = check_count(examination);
  const std::size_t found = examination.findings.size();
  const std::string findings = found == checked ? "" : ", " + counted(found, "finding");
  report.print("{}{}: {}\n", counted(checked, "check"), findings, counts_text(examination));
}

namespace {

struct BestNic {
  int number;  // of the GPU
  const Gpu& gpu;
  const Nic* nic;  // null: there is none
  std::string reason;
  Route route;
};

std::vector<BestNic> best_nics(const Topology& topology) {
  std::vector<BestNic> all;
  for (const NicOrder& order : nic_orders(topology)) {
    const auto number = static_cast<int>(all.size());
    BestNic& best = all.emplace_back(BestNic{number, topology.gpus[all.size()], nullptr, order.reason, {}});
    if (order.nics.empty()) continue;
    best.nic = &topology.nics[static_cast<std::size_t>(order.nics.front())];
    best.route = route_between(topology, {Endpoint::Kind::gpu, number}, {Endpoint::Kind::nic, order.nics.front()});
  }
  return all;
}

std::string rate_text(const Route& route) {
  if (!route.gb_per_s) return "rate unknown";
  return fmt::format("at most {:.1f} GB/s, by {}", *route.gb_per_s,
                     route.bottleneck.empty() ? "an unknown link" : plain(route.bottleneck, 200));
}

}  // namespace

void print_best_nics(Report& report, const Topology& topology) {
  if (topology.gpus.empty()) return;
  for (const BestNic& best : best_nics(topology)) {
    const std::string name = fmt::format("GPU{} {}", best.number, best.gpu.address.to_string());
    if (best.nic == nullptr) {
      report.print("{}: no NIC with RDMA\n", name);
      continue;
    }
    report.print("{}: best NIC {} ({}, {}; {})\n", name, plain(best.nic->name, 64),
                 short_name(best.route.relation, best.route.nvlink_count), rate_text(best.route), best.reason);
  }
}

Json best_nics_json(const Topology& topology) {
  return list_of(best_nics(topology), [](const BestNic& best) -> Json {
    return {{"gpu", best.number},
            {"gpu_address", best.gpu.address.to_string()},
            {"nic", best.nic != nullptr ? Json(plain(best.nic->name)) : Json()},
            {"reason", best.reason},
            {"relation", best.nic != nullptr ? Json(name_of(best.route.relation)) : Json()},
            {"gb_per_s", or_null(best.route.gb_per_s)},
            {"bottleneck", text_or_null(plain(best.route.bottleneck))}};
  });
}

Json to_json(const Finding& finding) { return document_of(finding); }

Json summary_json(const Examination& examination) { return document_of(summary_of(examination)); }

// --- --symptom: from what a user saw to the checks that explain it ---------------------------------------------------------------

namespace {

constexpr int kMaxTries = 3;

std::string list_text() {
  std::string text;
  std::size_t number = 0;
  for (const Symptom& symptom : symptoms()) text += fmt::format("{:>3}  {}\n", ++number, symptom.text);
  return text;
}

// One line, without keeping more of it than a number can have.
bool read_line(std::string& line) {
  constexpr std::size_t kMaxBytes = 64;
  line.clear();
  for (int letter = std::cin.get(); letter != std::char_traits<char>::eof(); letter = std::cin.get()) {
    if (letter == '\n') return true;
    if (line.size() < kMaxBytes) line += static_cast<char>(letter);
  }
  return !line.empty();
}

const Symptom* symptom_of(const std::string& line) {
  const auto number = parse_number(line, 1, symptoms().size());
  return number ? &symptoms()[*number - 1] : nullptr;
}

const Symptom& ask(Report& report) {
  std::string line;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    report.print("which one (1 to {})? ", symptoms().size());
    if (!read_line(line)) break;
    if (const Symptom* const chosen = symptom_of(line)) return *chosen;
  }
  report.print("\n");
  refuse_usage(fmt::format("--symptom: no number from 1 to {} was given; describe it instead: --symptom WORDS", symptoms().size()));
}

Diagnosis diagnosis_of(const Symptom& symptom) {
  Diagnosis diagnosis;
  diagnosis.lines.push_back({&symptom, 0, {}});
  diagnosis.checks.assign(symptom.checks.begin(), symptom.checks.end());
  return diagnosis;
}

// "@FILE", or "-" for standard input: a log may be longer than an argument can be.
bool names_file(const std::string& argument) { return argument == "-" || argument.starts_with('@'); }

std::string read_log(const std::string& argument) {
  constexpr std::size_t kMaxBytes = std::size_t{8} << 20U;
  const std::string end = fmt::format("give its end: tail -c {} FILE | gigabar doctor --symptom -", kMaxBytes);
  const InputForm form{kMaxBytes, "name a text file; a text that begins with '@' needs a blank before it", end};
  return argument == "-" ? read_standard_input("--symptom -", form) : read_file("--symptom", argument.substr(1), form);
}

bool is_blank(const std::string& text) { return text.find_first_not_of(std::string_view(" \t\r\n\v\f\0", 7)) == std::string::npos; }

// What the user's words are called in a message about them.
std::string name_of(const std::string& argument) {
  return names_file(argument) ? fmt::format("--symptom {}", plain(argument, 300))
                              : fmt::format("--symptom '{}'", plain(argument, 200));
}

// Of a check without a FAIL: unknown when a part of it could not be read, skip when all of it does not apply.
Verdict outcome_of(std::string_view check, const std::vector<Finding>& findings) {
  for (const Verdict verdict : {Verdict::warn, Verdict::unknown, Verdict::pass}) {
    const auto is_one = [&](const Finding& finding) { return finding.check == check && finding.verdict == verdict; };
    if (std::any_of(findings.begin(), findings.end(), is_one)) return verdict;
  }
  return Verdict::skip;
}

std::string checks_with(Verdict outcome, const Diagnosis& diagnosis, const std::vector<Finding>& findings) {
  std::string line;
  for (const std::string_view check : diagnosis.checks) {
    if (outcome_of(check, findings) != outcome) continue;
    if (!line.empty()) line += ", ";
    line += check;
  }
  return line;
}

Json to_json(const Diagnosis& diagnosis) {
  const auto line_json = [](const TellingLine& line) -> Json {
    return {{"line", line.number},           {"text", plain(line.text)},     {"program", line.symptom->program},
            {"symptom", line.symptom->text}, {"means", line.symptom->means}, {"remedy", line.symptom->remedy},
            {"checks", line.symptom->checks}};
  };
  return {{"text", diagnosis.lines.front().symptom->text},
          {"checks", diagnosis.checks},
          {"lines", list_of(diagnosis.lines, line_json)}};
}

}  // namespace

std::optional<Diagnosis> ask_symptom(const Options& options, Report& report) {
  const std::string& argument = *options.symptom;
  if (argument == kFromList) {
    report.print("{}", list_text());
    if (isatty(STDIN_FILENO) != 1) return std::nullopt;
    return diagnosis_of(ask(report));
  }
  const std::string text = names_file(argument) ? read_log(argument) : argument;
  if (is_blank(text)) refuse_usage(name_of(argument) + ": the text is empty; give the message, or a log as @FILE or '-'");
  Diagnosis diagnosis = diagnose(text);
  if (!diagnosis.lines.empty()) return diagnosis;
  report.print("{}", list_text());
  refuse_usage(name_of(argument) +
               ": no known message or symptom is like it; take words of one of those listed, or run all checks");
}

void tell_diagnosis(Report& report, const Diagnosis& diagnosis) {
  report.document()["symptom"] = to_json(diagnosis);
  for (const TellingLine& line : diagnosis.lines) {
    const Symptom& symptom = *line.symptom;
    const bool is_message = !symptom.program.empty();
    report.print("symptom: {}\n", is_message ? plain(line.text) : std::string(symptom.text));
    if (is_message) report.print("{}", part_of("from", fmt::format("{}; line {}", symptom.program, line.number)));
    if (!is_message && line.number > 0) report.print("{}", part_of("line", fmt::format("{}: {}", line.number, plain(line.text))));
    report.print("{}{}\n", part_of("means", std::string(symptom.means)), part_of("remedy", std::string(symptom.remedy)));
  }
}

void tell_conclusion(Report& report, const Diagnosis& diagnosis, const Examination& examination) {
  // One of the findings, of the symptom's checks, is something that is wrong.
  const bool is_explained = examination.count(Verdict::fail) + examination.count(Verdict::warn) > 0;
  report.document()["symptom"]["is_explained"] = is_explained;
  if (examination.count(Verdict::fail) > 0) return;
  const Symptom& symptom = *diagnosis.lines.front().symptom;
  if (diagnosis.checks.empty()) {
    report.print("No check can see this cause, and none was run: 'means' and 'remedy' above are the answer.\n");
    return;
  }
  report.print("{}\n",
               is_explained ? "Only warnings were found. If they do not explain the symptom:" : "The symptom is not explained.");
  const auto print = [&report](const std::string& text) { report.print("{}", wrapped(text, 100, 2)); };
  constexpr std::array<std::pair<Verdict, const char*>, 3> kOutcomes{
      {{Verdict::pass, "Found nothing"}, {Verdict::unknown, "Could not decide"}, {Verdict::skip, "Does not apply here"}}};
  for (const auto& [outcome, name] : kOutcomes) {
    const std::string checks = checks_with(outcome, diagnosis, examination.findings);
    if (!checks.empty()) print(fmt::format("{}: {}.", name, checks));
  }
  print(fmt::format("It still means: {}", symptom.means));
  print(fmt::format("Try next: {}", symptom.remedy));
  print(
      "Then run this as root, in the container in which the program ran, and on the other machine of a connection; "
      "'gigabar doctor' runs all checks.");
}

}  // namespace gigabar::tool::doctor
