// SPDX-License-Identifier: Apache-2.0
// gigabar doctor: checks of everything that decides which path a transfer takes and how fast it is; gigabar explain: the page of
// one of them.
#include "gigabar/doctor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/edit_distance.hpp"
#include "commands.hpp"
#include "doctor/output.hpp"
#include "gigabar/machine.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"
#include "support/signal_handlers.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool {
namespace {

using doctor::Options;

constexpr int kExitInterrupted = 130;
std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void end_process(int) {
  static constexpr char kText[] = "\ngigabar doctor: interrupted during a check\n";
  while (write(STDERR_FILENO, kText, sizeof kText - 1) < 0 && errno == EINTR) continue;
  _exit(kExitInterrupted);
}

// SIGINT, SIGTERM and SIGHUP while checks run: the examination is left at the next check, so that what it made is tidied up; when a
// check holds it for more than a second, the process ends where it is. The exit status is 130 either way. One lives at a time.
class Interrupt {
 public:
  Interrupt() : handlers_(begin_ending, SA_RESTART) {
    struct sigaction action{};
    action.sa_handler = end_process;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, &old_alarm_);
  }
  ~Interrupt() {
    alarm(0);
    sigaction(SIGALRM, &old_alarm_, nullptr);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Called between checks. Ends the examination when a signal has come.
  static void check(std::string_view next_check) {
    if (is_interrupted.load()) throw std::runtime_error(fmt::format("interrupted before the check {}", next_check));
  }

 private:
  static void begin_ending(int signal) {
    if (is_interrupted.exchange(true)) end_process(signal);
    alarm(1);
  }

  struct sigaction old_alarm_{};
  EndHandlers handlers_;
};

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

Examination examine_with(const Machine& machine, const Options& options, Report& report) {
  const Interrupt interrupt;
  ExamineOptions wanted;
  for (const std::string& typed : options.only) wanted.only.push_back(doctor::current_id_with_note(typed));
  wanted.with_probes = options.has_probes;
  wanted.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.most_seconds * 1000));
  wanted.on_begin = [&report](const CheckInfo& check) {
    Interrupt::check(check.id);
    report.show_progress("{}: {}", check.id, check.title);
  };
  Result<Examination> examination = examine(machine, wanted);
  if (examination) return std::move(examination).value();
  // examine() has made an error of what Interrupt::check threw.
  if (is_interrupted.load()) throw CommandFailure(kExitInterrupted, plain(examination.error().record().cause));
  const std::string message = plain(examination.error().message());
  if (examination.status() == Status::invalid_argument) refuse_usage("--only: " + message);
  fail(message);
}

// In the order of the symptom's checks: the likeliest first.
void sort_by(const std::vector<std::string_view>& checks, std::vector<Finding>& findings) {
  std::vector<Finding> sorted;
  for (const std::string_view check : checks) {
    std::copy_if(findings.begin(), findings.end(), std::back_inserter(sorted),
                 [check](const Finding& finding) { return finding.check == check; });
  }
  findings = std::move(sorted);
}

int exit_status_of(const Examination& examination, bool is_strict) {
  const std::size_t unsure = examination.count(Verdict::warn) + examination.count(Verdict::unknown);
  return examination.count(Verdict::fail) > 0 || (is_strict && unsure > 0) ? kExitFailed : 0;
}

void tell(Report& report, const Options& options, const Examination& examination) {
  doctor::print_findings(report, options, examination.findings);
  for (const std::string& note : examination.topology.notes) report.note(plain(note));
  doctor::print_best_nics(report, examination.topology);
  doctor::print_summary(report, examination);
  report.document()["summary"] = doctor::summary_json(examination);
  report.document()["best_nics"] = doctor::best_nics_json(examination.topology);
  for (const Finding& finding : examination.findings) report.add_result(doctor::to_json(finding));
}

// Runs the checks that the symptom names, if a check can see its cause.
void follow_symptom(const Machine& machine, Options& options, Report& report, Invocation& invocation) {
  const auto diagnosis = doctor::ask_symptom(options, report);
  if (!diagnosis) {
    for (const Symptom& one : symptoms()) {
      report.add_result({{"symptom", one.text}, {"checks", one.checks}, {"means", one.means}, {"remedy", one.remedy}});
    }
    return;
  }
  doctor::tell_diagnosis(report, *diagnosis);
  Examination examination;
  if (!diagnosis->checks.empty()) {
    options.only.assign(diagnosis->checks.begin(), diagnosis->checks.end());
    examination = examine_with(machine, options, report);
    sort_by(diagnosis->checks, examination.findings);
    tell(report, options, examination);
  }
  doctor::tell_conclusion(report, *diagnosis, examination);
  invocation.exit_status = exit_status_of(examination, options.is_strict);
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
      const Examination examination = examine_with(machine, options, report);
      tell(report, options, examination);
      invocation.exit_status = exit_status_of(examination, options.is_strict);
    }
  }
  report.write();
}

void add_choices(const Command& command, Options& options) {
  Option only = command.add_option("--only", options.only, "These checks only: ids, or groups by their first part ('pci')")
                    ->delimiter(',')
                    ->expected(1, 1000)
                    ->allow_extra_args(false)
                    ->type_name("IDS,...");
  // As an option of an optional text, an empty one would be none.
  const auto take_symptom = [&options](const std::string& text) { options.symptom = text; };
  Option symptom =
      command
          .add_option_function("--symptom", take_symptom,
                               "What is wrong, in your words, or what a program printed, also a whole log as @FILE or '-' for "
                               "standard input: says what it means and runs the checks that explain it, the likeliest first; "
                               "without text, choose from a list")
          ->expected(0, 1)
          ->default_str(doctor::kFromList)
          ->type_name("WORDS");
  symptom->excludes(only);
  command.add_flag("--list", options.is_list, "List the checks, and run none")->excludes(only)->excludes(symptom);
}

void add_manner(const Command& command, Options& options) {
  command.add_flag("--strict", options.is_strict, "Exit status 1 for WARN and UNKNOWN too");
  command.add_flag_that_clears("--no-probes,--no-trials", options.has_probes, "Only read; register, map and copy nothing");
  command.add_flag("--all", options.shows_all, "A line for each PASS and SKIP too");
  command.add_flag("--verbose", options.is_verbose, "Everything that was read, for PASS and SKIP too");
  command.add_option("--timeout", options.most_seconds, seconds(86400),
                     "Of the whole run: checks that have not begun by then are UNKNOWN");
  add_json_option(command, options.json_path);
}

// --- gigabar explain ------------------------------------------------------------------------------------------------------------

constexpr std::size_t kWidth = 100;
constexpr std::size_t kMaxNear = 5;

// Ids of the same group are near however long they are.
std::string near_ids(std::string_view wanted) {
  const std::string_view group = wanted.substr(0, wanted.find('.'));
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const CheckInfo& check : checks()) {
    const bool is_of_group = check.id.substr(0, check.id.find('.')) == group;
    near.emplace_back(edit_distance(wanted.substr(0, 64), check.id) / (is_of_group ? 4 : 1), check.id);
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxNear, near.size()); ++i) text += (i == 0 ? "" : ", ") + std::string(near[i].second);
  return text;
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

void print_list() { fmt::print("{}\n'gigabar explain ID' prints the page of one\n", list_of_checks("")); }

void run_explain(const std::string& typed, const Invocation&) {
  if (typed.empty()) return print_list();
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
  add_choices(command, options);
  add_manner(command, options);
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
