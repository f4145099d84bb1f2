// SPDX-License-Identifier: Apache-2.0
// gigabar preflight: is this node fit for a job? The doctor's checks, and verified bytes and a rate on every path.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <optional>

#include "commands.hpp"
#include "doctor/check.hpp"
#include "doctor/output.hpp"
#include "gigabar/doctor.hpp"
#include "memory/runtime.hpp"
#include "preflight/preflight.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace preflight {
namespace {

struct Options {
  std::string sysroot;
  double budget_seconds = 20;
  Format format = Format::table;
  std::string require, baseline_path, textfile_path, json_path;
  std::vector<std::string> ignored;
  bool is_strict = false;
};

// The share of the budget that the doctor, which comes first, may use.
constexpr double kDoctorShare = 0.5;
// A run that is not over by then hangs in a call that has no limit.
constexpr double kHangFactor = 2, kHangSeconds = 10;
constexpr auto kOutputTime = std::chrono::seconds(10);

Criteria criteria_of(const Options& options) {
  Criteria criteria;
  if (!options.require.empty()) {
    auto requirements = parse_requirements(options.require);
    if (!requirements) refuse_usage(requirements.error().message());
    criteria.requirements = std::move(requirements).value();
  }
  if (!options.baseline_path.empty()) criteria.baseline = survey::read_document("--baseline", options.baseline_path);
  return criteria;
}

// By their names of today; what is none of the checks is refused, as --only of the doctor does.
std::vector<std::string> ignored_checks(const Options& options) {
  std::vector<std::string> ids;
  for (const std::string& typed : options.ignored) ids.push_back(doctor::current_id_with_note(typed));
  if (const Result<void> known = gigabar::doctor::require_checks(ids); !known)
    refuse_usage("--ignore: " + plain(known.error().message()));
  return ids;
}

double now_since_1970() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The answer of the formats that have neither the table nor the document, and of all where there is no time for those.
void print_answer(const Options& options, const Judgement& judgement, const Metrics& metrics) {
  std::FILE* const text = options.format == Format::json ? stderr : stdout;
  if (options.format == Format::prometheus) {
    fmt::print(text, "{}", metrics_text(judgement, metrics));
  } else {
    fmt::print(text, "{}{}\n", judgement.line, stand_in_label(metrics.is_stand_in));
  }
  flush(text);
}

void describe(Report& report, const Judgement& judgement, const Examination& examination, double budget_s, double elapsed_s) {
  Json& document = report.document();
  document["verdict"] = name_of(judgement.state);
  document["line"] = judgement.line;
  document["summary"] = doctor::summary_json(examination);
  document["budget_s"] = budget_s;
  document["elapsed_s"] = elapsed_s;
  for (const Item& item : judgement.items) report.add_result(to_json(item));
}

// One that fails keeps no other back. False when it failed.
template <class Act>
bool try_output(const Act& act) {
  try {
    act();
    return true;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gigabar preflight: {}\n", error.what());
    return false;
  }
}

// The metrics and the document; false when one of them could not be written.
bool write_outputs(const Options& options, const Judgement& judgement, const Metrics& metrics, Report& report) {
  const bool has_metrics = options.textfile_path.empty() ||
                           try_output([&] { write_file("--textfile", options.textfile_path, metrics_text(judgement, metrics)); });
  return try_output([&] { report.write(); }) && has_metrics;
}

// Metrics or a document that could not be written make a fit node's 1, but not for programs that would take that for the node's.
int exit_status_of(const Options& options, State state, bool is_written) {
  const int status = preflight::exit_status_of(state, options.format, options.is_strict);
  const bool is_of_answer = options.format == Format::npd || options.format == Format::nhc;
  return status == 0 && !is_written && !is_of_answer ? kExitFailed : status;
}

// The process, in kOutputTime: where outputs go may hang as well. By a signal to this thread, since one to the process may go to
// the thread that hangs. A call that hangs in the loader of libraries lets no thread start.
void end_in_time(int status) {
  static std::atomic<int> wanted_status;
  wanted_status = status;
  std::signal(SIGALRM, [](int) { _exit(wanted_status); });
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = ::gettid();
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return;
  const itimerspec time{{}, {kOutputTime.count(), 0}};
  ::timer_settime(timer, 0, &time, nullptr);
}

// The answer of a run that hangs; this thread has nothing else left. `report` is its own: the thread that hangs may go on with the
// run's.
[[noreturn]] void give_up(const Options& options, Report& report, double seconds, const std::string& step) {
  const int status = preflight::exit_status_of(State::unknown, options.format, options.is_strict);
  end_in_time(status);
  const Examination nothing;
  const Criteria none;
  Evidence evidence{nothing, {}, none};
  evidence.not_measured = {.name = "preflight",
                           .state = State::unknown,
                           .statement = fmt::format("{} did not end within {:.0f} s", step, seconds),
                           .remedy = "look for Xid lines and for hung tasks in the kernel's log (dmesg)"};
  const Judgement judgement = judge(evidence);
  const Metrics metrics{seconds, now_since_1970(), false};
  try_output([&] { print_answer(options, judgement, metrics); });
  try_output([&] {
    report.document()["origin"] = {{"is_live", options.sysroot.empty()}, {"path", plain(options.sysroot)}, {"remark", ""}};
    describe(report, judgement, nothing, options.budget_seconds, seconds);
    write_outputs(options, judgement, metrics, report);
  });
  std::fflush(nullptr);
  _exit(status);
}

Finding nothing_seen(const std::string& statement) { return {std::string(kNothing), {}, Verdict::unknown, statement, {}, {}}; }

// What the doctor finds. Where it cannot examine at all, the node is unknown, not broken.
Examination examine_node(const Machine& machine, const Options& options, const Tell& tell) {
  ExamineOptions wanted;
  wanted.with_probes = machine.is_live();
  wanted.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.budget_seconds * kDoctorShare * 1000));
  wanted.on_begin = [&tell](const CheckInfo& check) { tell(fmt::format("the check {}", check.id)); };
  Result<Examination> examination = examine(machine, wanted);
  if (!examination) {
    Examination none;
    none.findings.push_back(nothing_seen("nothing could be examined: " + examination.error().message()));
    return none;
  }
  if (!examination->has_topology) {
    examination->findings.push_back(
        nothing_seen("the machine's devices could not be listed: " + examination->topology.notes.back()));
  }
  return std::move(examination).value();
}

// The devices whose paths are measured; none, with the reason, where there are none. Of another machine its files are all there is.
std::vector<DeviceInfo> find_devices(const Machine& machine, Evidence& evidence) {
  if (!machine.is_live()) return {};
  const auto give_reason = [&evidence](State state, std::string statement, std::string remedy) -> std::vector<DeviceInfo> {
    evidence.not_measured = {
        .kind = Item::Kind::path, .name = "paths", .state = state, .statement = std::move(statement), .remedy = std::move(remedy)};
    return {};
  };
  Result<std::vector<DeviceInfo>> found = devices();
  if (!found) {
    if (found.status() == Status::invalid_argument) fail(found.error().message());
    return give_reason(State::unfit, found.error().record().cause, found.error().record().remedy);
  }
  if (found->front().is_stand_in && take(forced_stand_in_count()) == 0) {
    return give_reason(State::unknown, "no GPU can be used here",
                       "'gigabar info' tells why; on a node that must have GPUs, add --require 'gpus>=1'");
  }
  evidence.device_count = found->size();
  return std::move(found).value();
}

void run_preflight(const Options& options, Invocation& invocation) {
  const TimeLeft time{.budget_s = options.budget_seconds};
  const std::vector<std::string> ignored = ignored_checks(options);
  if (!options.textfile_path.empty()) require_writable("--textfile", options.textfile_path);
  const bool is_json = options.format == Format::json;
  if (is_json && !options.json_path.empty() && options.json_path != "-")
    refuse_usage("--json: with --format json the document goes to standard output; leave one of them out");
  const std::string json_path = is_json ? "-" : options.json_path;
  Report report("preflight", invocation, json_path);
  if (options.format != Format::table) report.end_text();

  const double limit_s = options.budget_seconds * kHangFactor + kHangSeconds;
  Report of_hang("preflight", invocation, json_path);
  std::optional<Watchdog> watchdog;
  watchdog.emplace(limit_s, [&](const std::string& step) { give_up(options, of_hang, limit_s, step); });
  const Tell tell = [&](const std::string& step) {
    watchdog->begin(step);
    report.show_progress("{}", step);
  };
  if (!options.baseline_path.empty()) tell("reading --baseline");  // from a file system that may hang
  const Criteria criteria = criteria_of(options);
  tell("opening the machine");
  const Machine machine = open_machine(options.sysroot);
  tell_origin(report, machine);
  const Examination examination = examine_node(machine, options, tell);
  for (const std::string& note : examination.topology.notes) report.note(plain(note));
  tell("which paths are available");
  const std::vector<PathReport> available = availability(machine);
  Evidence evidence{examination, available, criteria};
  evidence.ignored = ignored;
  evidence.is_strict = options.is_strict;
  tell("finding the devices");
  const std::vector<DeviceInfo> found = find_devices(machine, evidence);
  std::vector<Path> paths;
  if (!found.empty()) {
    report.set_device(found.front());
    paths = measure_paths({.devices = found,
                           .criteria = criteria,
                           .time = time,
                           .tell = tell,
                           .run = [](const StreamPlan& plan) { return run_streams(plan); },
                           .load_of = [&found](const Path& path) { return preflight::load_of(path, found); }});
  }
  evidence.paths = paths;
  watchdog.reset();  // from here on the answer is this thread's to give
  const Judgement judgement = judge(evidence);
  describe(report, judgement, examination, options.budget_seconds, time.elapsed_s());
  print_table(report, judgement);
  report.print("\n{:.1f} s\n", time.elapsed_s());
  const Metrics metrics{time.elapsed_s(), now_since_1970(), report.is_stand_in()};
  const bool is_written = write_outputs(options, judgement, metrics, report);
  if (options.format != Format::table && !is_json) print_answer(options, judgement, metrics);
  invocation.exit_status = exit_status_of(options, judgement.state, is_written);
}

void add_forms(const Command& command, Options& options) {
  constexpr std::array<Named<Format>, 5> kFormats = {{{Format::table, "table"},
                                                      {Format::json, "json"},
                                                      {Format::npd, "npd"},
                                                      {Format::nhc, "nhc"},
                                                      {Format::prometheus, "prometheus"}}};
  command
      .add_choice("--format", options.format, kFormats,
                  "table (default), json (as --json -), npd (a line for Node Problem Detector), nhc (a line for LBNL Node Health "
                  "Check) or prometheus (OpenMetrics)")
      ->type_name("NAME")
      ->default_str("");
  command.add_option("--textfile", options.textfile_path, Value{"FILE"},
                     "Also write the metrics to this file, for node_exporter's textfile collector; it is replaced in one step");
  add_json_option(command, options.json_path);
}

}  // namespace
}  // namespace preflight

void add_preflight(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<preflight::Options>(
      program, invocation, "preflight",
      "Is this node fit for a job? The doctor's checks, verified bytes and a rate on every path, one answer",
      preflight::run_preflight);
  add_sysroot_option(command, options.sysroot);
  add_budget_option(command, options.budget_seconds, 600, "About this long in all; paths that do not fit are unknown");
  command.add_option("--require", options.require, Value{"PATH,..."},
                     "What the job needs: checks that must pass, paths that must be available, counts and rates: 'nvlink>=18, gdr, "
                     "host->gpu>=0.8'");
  command.add_option("--baseline", options.baseline_path, Value{"FILE"},
                     "A survey of this node in good health ('gigabar survey --json'), which rates are held against");
  command
      .add_option("--ignore", options.ignored, Value{"IDS,..."}, "Checks, or groups of them ('pci'), whose findings do not count")
      ->delimiter(',')
      ->expected(1, 1000)
      ->allow_extra_args(false);
  command.add_flag("--strict", options.is_strict, "WARN and what could not be read count too");
  preflight::add_forms(command, options);
  command->footer(
      "fit: no check is a FAIL, and the bytes of every path arrived unchanged at a good rate. unfit: the line names the device "
      "and\n"
      "the remedy. unknown: a path could not be measured, or other work uses it, or there is no GPU.\n"
      "A rate is good from 70 % of its link's on, or within the noise of --baseline, or as --require has it.\n"
      "Exit status: 0 fit; 1 unfit, or the run failed; 2 the command line cannot be followed; 3 unknown. npd: 2 for unknown.\n"
      "nhc: 0 for unknown, since a node that works for another job is not to be drained; 1 with --strict.");
}

}  // namespace gigabar::tool
