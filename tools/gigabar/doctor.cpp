// SPDX-License-Identifier: Apache-2.0
// gigabar doctor: checks of everything that decides which path a transfer takes and how fast it is; gigabar explain: the page of
// one of them.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/edit_distance.hpp"
#include "base/insertion_sort.hpp"
#include "base/options.hpp"
#include "commands.hpp"
#include "doctor/members.hpp"
#include "doctor/output.hpp"
#include "gigabar/machine.hpp"
#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/names.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

constexpr const char* kFromList = "from a list";  // what --symptom without a text stands for

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

constexpr std::size_t kWidth = 100;  // of text

void end_process(int) {
  static constexpr char kText[] = "\ngigabar doctor: interrupted during a check\n";
  while (write(STDERR_FILENO, kText, sizeof kText - 1) < 0 && errno == EINTR) continue;
  _exit(kExitInterrupted);
}

// SIGINT, SIGTERM and SIGHUP while checks run: the examination is left at the next check, so that what it made is tidied up; when a
// check holds it for more than a second, the process ends where it is. The exit status is 130 either way.
void begin_ending(int signal) {
  if (Interrupt::set()) end_process(signal);
  std::signal(SIGALRM, end_process);
  alarm(1);
}

// --- Findings --------------------------------------------------------------------------------------------------------------------

constexpr std::size_t kMaxReadingsShown = 8;
// From what has to be done to what needs nothing, with colours of a terminal (ECMA-48, SGR): red, yellow, magenta, green, and dim.
constexpr std::array<Named<Verdict>, 5> kColours = {{{Verdict::fail, "\x1b[1;31m"},
                                                     {Verdict::warn, "\x1b[1;33m"},
                                                     {Verdict::unknown, "\x1b[1;35m"},
                                                     {Verdict::pass, "\x1b[32m"},
                                                     {Verdict::skip, "\x1b[2m"}}};

std::string head_of(const Report& report, const Finding& finding) {
  std::string verdict = fmt::format("{:<7}", name_of(finding.verdict));
  if (report.has_colours()) verdict = fmt::format("{}{}\x1b[0m", name_in(kColours, finding.verdict), verdict);
  const std::string subject = finding.subject.empty() ? "" : ": " + plain(finding.subject, 200);
  return fmt::format("{} {}{}", verdict, plain(finding.check, 64), subject);
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
  const bool is_next = above != nullptr && above->check == finding.check && doctor::wants_reading(above->verdict);
  std::string text = head_of(report, finding) + "\n";
  text += wrapped(plain(finding.statement), kWidth, 2);
  text += readings_of(options, finding);
  if (check != nullptr && doctor::wants_reading(finding.verdict) && !is_next) text += part_of("why", plain(check->why));
  const std::string remedy = plain(finding.remedy) + (finding.needs_reboot ? " (needs a reboot)" : "");
  const bool is_same = is_next && above->remedy == finding.remedy && above->needs_reboot == finding.needs_reboot;
  if (!finding.remedy.empty()) text += part_of("remedy", is_same ? "as above" : remedy);
  report.print("{}\n", text);
}

// A block for each finding that wants reading, the gravest first; PASS and SKIP as the options say. With a symptom, findings stay
// in the order of its checks and each is at least a line, since a suspect that is cleared tells something too.
void print_findings(Report& report, const Options& options, const std::vector<Finding>& findings) {
  const std::vector<Finding> shown = options.symptom ? findings : doctor::by_gravity(findings);
  const Finding* above = nullptr;  // the last one that has a block
  for (const Finding& finding : shown) {
    if (doctor::wants_reading(finding.verdict) || options.is_verbose) {
      print_block(report, options, finding, std::exchange(above, &finding));
    } else if (options.shows_all || options.symptom) {
      report.print("{}: {}\n", head_of(report, finding), plain(finding.statement, 300));
    }
  }
}

Examination examine_with(const Machine& machine, const Options& options, Report& report) {
  ExamineOptions wanted;
  for (const std::string& typed : options.only) wanted.only.push_back(doctor::current_id_with_note(typed));
  wanted.with_probes = options.has_probes;
  wanted.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.most_seconds * 1000));
  wanted.on_begin = [&report](const CheckInfo& check) {
    if (Interrupt::is_set()) throw std::runtime_error(fmt::format("interrupted before the check {}", check.id));
    report.show_progress("{}: {}", check.id, check.title);
  };
  Result<Examination> examination = [&] {
    const Interrupt interrupt(begin_ending, 0);
    return examine(machine, wanted);
  }();
  alarm(0);
  if (examination) return std::move(examination).value();
  // examine() has made an error of what on_begin threw.
  if (Interrupt::is_set()) throw CommandFailure(kExitInterrupted, plain(examination.error().record().cause));
  const std::string message = plain(examination.error().message());
  if (examination.status() == Status::invalid_argument) refuse_usage("--only: " + message);
  fail(message);
}

// In the text, in the document, and as the exit status.
void tell(Report& report, const Options& options, const Examination& examination, Invocation& invocation) {
  print_findings(report, options, examination.findings);
  for (const std::string& note : examination.topology.notes) report.note(plain(note));
  Json best_nics = doctor::tell_best_nics(report, examination.topology);
  // "44 checks, 51 findings: 1 FAIL, 2 WARN, 1 UNKNOWN, 37 PASS, 10 SKIP".
  const std::size_t checked = check_count(examination), found = examination.findings.size();
  const std::string findings = found == checked ? "" : ", " + counted(found, "finding");
  report.print("{}{}: {}\n", counted(checked, "check"), findings, doctor::counts_text(examination));
  report.document()["summary"] = doctor::summary_json(examination);
  report.document()["best_nics"] = std::move(best_nics);
  for (const Finding& finding : examination.findings) report.add_result(doctor::to_json(finding));
  const std::size_t unsure = examination.count(Verdict::warn) + examination.count(Verdict::unknown);
  if (examination.count(Verdict::fail) > 0 || (options.is_strict && unsure > 0)) invocation.exit_status = kExitFailed;
}

// --- --symptom: from what a user saw to the checks that explain it ---------------------------------------------------------------

constexpr int kMaxTries = 3;

std::string list_text() {
  std::string text;
  std::size_t number = 0;
  for (const Symptom& symptom : symptoms()) text += fmt::format("{:>3}  {}\n", ++number, symptom.text);
  return text;
}

// By the number that is typed.
Diagnosis ask(Report& report) {
  std::string line;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    report.print("which one (1 to {})? ", symptoms().size());
    if (!std::getline(std::cin, line)) break;
    const auto number = parse_number(line, 1, symptoms().size());
    if (!number) continue;
    const Symptom& chosen = symptoms()[*number - 1];
    return {{{&chosen, 0, {}}}, {chosen.checks.begin(), chosen.checks.end()}};
  }
  report.print("\n");
  refuse_usage(fmt::format("--symptom: no number from 1 to {} was given; describe it instead: --symptom WORDS", symptoms().size()));
}

// "@FILE", or "-" for standard input: a log may be longer than an argument can be.
bool names_file(const std::string& argument) { return argument == "-" || argument.starts_with('@'); }

std::string read_log(const std::string& argument) {
  constexpr std::size_t kMaxBytes = std::size_t{8} << 20U;
  const std::string end = fmt::format("give its end: tail -c {} FILE | gigabar doctor --symptom -", kMaxBytes);
  const InputForm form{kMaxBytes, "name a text file; a text that begins with '@' needs a blank before it", end};
  return argument == "-" ? read_standard_input("--symptom -", form) : read_file("--symptom", argument.substr(1), form);
}

// What the user's words are called in a message about them.
std::string argument_text(const std::string& argument) {
  return names_file(argument) ? fmt::format("--symptom {}", plain(argument, 300))
                              : fmt::format("--symptom '{}'", plain(argument, 200));
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

// What the text says, or the file that it names; without text, the symptom that is chosen from the list on a terminal. Empty: it
// was only asked for the list, which is printed. Ends the command as bad usage, with the list, when nothing is known of the text.
std::optional<Diagnosis> ask_symptom(const Options& options, Report& report) {
  const std::string& argument = *options.symptom;
  if (argument == kFromList) {
    report.print("{}", list_text());
    if (isatty(STDIN_FILENO) != 1) return std::nullopt;
    return ask(report);
  }
  const std::string text = names_file(argument) ? read_log(argument) : argument;
  if (text.find_first_not_of(std::string_view(" \t\r\n\v\f\0", 7)) == std::string::npos) {
    refuse_usage(argument_text(argument) + ": the text is empty; give the message, or a log as @FILE or '-'");
  }
  Diagnosis diagnosis = diagnose(text);
  if (!diagnosis.lines.empty()) return diagnosis;
  report.print("{}", list_text());
  refuse_usage(argument_text(argument) +
               ": no known message or symptom is like it; take words of one of those listed, or run all checks");
}

// In the text and in the document: the telling lines, and for each what it means and what to do.
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

// Behind the findings: whether they explain the symptom; unless one is a FAIL, what the checks say of it, and what to try next.
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
  const auto print = [&report](const std::string& text) { report.print("{}", wrapped(text, kWidth, 2)); };
  const std::vector<Finding> gravest_first = doctor::by_gravity(examination.findings);
  std::map<Verdict, std::string> outcomes;
  for (const std::string_view check : diagnosis.checks) {
    // Without a FAIL: unknown when a part of it could not be read, skip when all of it does not apply.
    const auto gravest = std::ranges::find(gravest_first, check, &Finding::check);
    std::string& line = outcomes[gravest == gravest_first.end() ? Verdict::skip : gravest->verdict];
    line.append(line.empty() ? "" : ", ").append(check);
  }
  constexpr std::array<std::pair<Verdict, const char*>, 3> kOutcomes{
      {{Verdict::pass, "Found nothing"}, {Verdict::unknown, "Could not decide"}, {Verdict::skip, "Does not apply here"}}};
  for (const auto& [outcome, name] : kOutcomes) {
    if (!outcomes[outcome].empty()) print(fmt::format("{}: {}.", name, outcomes[outcome]));
  }
  print(fmt::format("It still means: {}", symptom.means));
  print(fmt::format("Try next: {}", symptom.remedy));
  print(
      "Then run this as root, in the container in which the program ran, and on the other machine of a connection; "
      "'gigabar doctor' runs all checks.");
}

// Runs the checks that the symptom names, if a check can see its cause.
void follow_symptom(const Machine& machine, Options& options, Report& report, Invocation& invocation) {
  const auto diagnosis = ask_symptom(options, report);
  if (!diagnosis) {
    for (const Symptom& one : symptoms()) {
      report.add_result({{"symptom", one.text}, {"checks", one.checks}, {"means", one.means}, {"remedy", one.remedy}});
    }
    return;
  }
  tell_diagnosis(report, *diagnosis);
  Examination examination;
  if (!diagnosis->checks.empty()) {
    options.only.assign(diagnosis->checks.begin(), diagnosis->checks.end());
    examination = examine_with(machine, options, report);
    // In the order of the symptom's checks, the likeliest first; without those of which one of them is a part of the name.
    const auto place = [&](const Finding& each) { return std::ranges::find(diagnosis->checks, each.check); };
    std::erase_if(examination.findings, [&](const Finding& each) { return place(each) == diagnosis->checks.end(); });
    insertion_sort(examination.findings, [&](const Finding& one, const Finding& other) { return place(one) < place(other); });
    tell(report, options, examination, invocation);
  }
  tell_conclusion(report, *diagnosis, examination);
}

// --- The command -----------------------------------------------------------------------------------------------------------------

// `of_probe`: behind the title of one.
std::string list_of_checks(const char* of_probe) {
  TextTable table({{"id", true}, {"title", true}});
  for (const CheckInfo& check : checks()) {
    table.add_row({std::string(check.id), std::string(check.title) + (check.is_probe ? of_probe : "")});
  }
  return table.take_text();
}

void list_checks(Report& report) {
  for (const CheckInfo& check : checks()) {
    report.add_result({{"id", check.id}, {"title", check.title}, {"why", check.why}, {"is_probe", check.is_probe}});
  }
  report.print("{}", list_of_checks(" (a probe: does something, and only on this machine)"));
}

void run_doctor(Options& options, Invocation& invocation) {
  const Machine machine = options.is_list ? Machine::here() : open_machine(options.sysroot);
  Report report("doctor", invocation, options.json_path);
  if (options.is_list) {
    list_checks(report);
  } else {
    tell_origin(report, machine);
    if (options.symptom) {
      follow_symptom(machine, options, report, invocation);
    } else {
      tell(report, options, examine_with(machine, options, report), invocation);
    }
  }
  report.write();
}

// --- gigabar explain ------------------------------------------------------------------------------------------------------------

constexpr std::size_t kMaxNear = 5;

// Ids of the same group are near however long they are.
std::string near_ids(std::string_view wanted) {
  const std::string_view group = wanted.substr(0, wanted.find('.'));
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const CheckInfo& check : checks()) {
    const bool is_of_group = check.id.substr(0, check.id.find('.')) == group;
    near.emplace_back(edit_distance(wanted.substr(0, 64), check.id) / (is_of_group ? 4 : 1), check.id);
  }
  std::ranges::sort(near);
  return fmt::format("{}", fmt::join(near | std::views::values | std::views::take(kMaxNear), ", "));
}

void print_part(const char* heading, std::string_view text) {
  if (!text.empty()) fmt::print("\n{}\n{}", heading, wrapped(text, kWidth, 2));
}

void print_page(const CheckInfo& check) {
  fmt::print("{}: {}\n", check.id, check.title);
  fmt::print("{}", wrapped(check.why, kWidth, 2));
  if (check.is_probe) fmt::print("  A probe: it does something rather than read, and only on the machine that it runs on.\n");
  print_part("What it is", check.what);
  print_part("Impact", check.impact);
  print_part("How to confirm", check.confirm);
  print_part("Remedy", check.remedy);
  print_part("Source", check.source);
}

void run_explain(const std::string& typed, const Invocation&) {
  if (typed.empty()) return fmt::print("{}\n'gigabar explain ID' prints the page of one\n", list_of_checks(""));
  const std::string id = doctor::current_id_with_note(typed);
  const CheckInfo* const check = find_check(id);
  if (check == nullptr) {
    refuse_usage(
        fmt::format("'{}': there is no such check; near ones are {}; without an id all are listed", plain(id, 100), near_ids(id)));
  }
  print_page(*check);
}

}  // namespace

void add_doctor(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "doctor",
      "Checks what decides which path a transfer takes and how fast it is: verdict, evidence, reason and remedy", run_doctor);
  add_sysroot_option(command, options.sysroot);
  Option only =
      command->add_option("--only", options.only, Value{"IDS,..."}, "These checks only: ids, or groups by their first part ('pci')")
          ->delimiter(',')
          ->expected(1, 1000)
          ->allow_extra_args(false);
  // As an option of an optional text, an empty one would be none.
  const auto take_symptom = [&options](const std::string& text) { options.symptom = text; };
  Option symptom =
      command
          .add_option_function("--symptom", take_symptom,
                               "What is wrong, in your words, or what a program printed, also a whole log as @FILE or '-' for "
                               "standard input: says what it means and runs the checks that explain it, the likeliest first; "
                               "without text, choose from a list")
          ->expected(0, 1)
          ->default_str(kFromList)
          ->type_name("WORDS");
  symptom->excludes(only);
  command->add_flag("--list", options.is_list, "List the checks, and run none")->excludes(only)->excludes(symptom);
  command->add_flag("--strict", options.is_strict, "Exit status 1 for WARN and UNKNOWN too");
  command->add_flag_that_clears("--no-probes,--no-trials", options.has_probes, "Only read; register, map and copy nothing");
  command->add_flag("--all", options.shows_all, "A line for each PASS and SKIP too");
  command->add_flag("--verbose", options.is_verbose, "Everything that was read, for PASS and SKIP too");
  command->add_option("--timeout", options.most_seconds, seconds(86400),
                      "Of the whole run: checks that have not begun by then are UNKNOWN");
  add_json_option(command, options.json_path);
  command->footer(
      "FAIL: a path is broken, or wrong data may come of it. WARN: works, slower or less than it could. UNKNOWN: what would\n"
      "decide could not be read, which is not a PASS. SKIP: does not apply here. 'gigabar explain ID' tells more of a check.\n"
      "No check changes the machine; remedies are printed, never run.\n"
      "Exit status: 0 no FAIL; 1 a FAIL (with --strict, also a WARN or an UNKNOWN); 2 the command line cannot be followed (a\n"
      "bad --sysroot and an unknown symptom too); 130 interrupted. A symptom that no check explains is said to be so, with 0.");
}

void add_explain(const Command& program, Invocation& invocation) {
  const auto [command, id] =
      add_subcommand<std::string>(program, invocation, "explain",
                                  "What a check of 'doctor' is about: its impact, how to confirm it, and the remedy", run_explain);
  command->add_option("check", id, Value{"ID"}, "Id of the check, as 'gigabar doctor' prints it; without one, all are listed");
  command->footer("Exit status: 0 done, 2 there is no such check.");
}

}  // namespace gigabar::tool
