// SPDX-License-Identifier: Apache-2.0
#include "doctor/symptoms.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <utility>

#include "base/options.hpp"
#include "doctor/output.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::doctor {
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

void print_diagnosis(Report& report, const Diagnosis& diagnosis) {
  for (const TellingLine& line : diagnosis.lines) {
    const Symptom& symptom = *line.symptom;
    const bool is_message = !symptom.program.empty();
    report.print("symptom: {}\n", is_message ? plain(line.text) : std::string(symptom.text));
    if (is_message) report.print("{}", part_of("from", fmt::format("{}; line {}", symptom.program, line.number)));
    if (!is_message && line.number > 0) report.print("{}", part_of("line", fmt::format("{}: {}", line.number, plain(line.text))));
    report.print("{}{}\n", part_of("means", std::string(symptom.means)), part_of("remedy", std::string(symptom.remedy)));
  }
}

bool is_explained(const Examination& examination) {
  return examination.count(Verdict::fail) + examination.count(Verdict::warn) > 0;
}

void print_conclusion(Report& report, const Diagnosis& diagnosis, const Examination& examination) {
  if (examination.count(Verdict::fail) > 0) return;
  const Symptom& symptom = *diagnosis.lines.front().symptom;
  if (diagnosis.checks.empty()) {
    report.print("No check can see this cause, and none was run: 'means' and 'remedy' above are the answer.\n");
    return;
  }
  report.print("{}\n", is_explained(examination) ? "Only warnings were found. If they do not explain the symptom:"
                                                 : "The symptom is not explained.");
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

}  // namespace gigabar::tool::doctor
