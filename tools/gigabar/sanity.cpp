// SPDX-License-Identifier: Apache-2.0
// gigabar sanity: runs the scenarios of tests/scenarios, each in a process of its own with a deadline, and says pass, fail or
// waived, with the reason. The process is this program again, with a hidden option, because CUDA does not survive fork.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ranges>
#include <vector>

#include "base/descriptor.hpp"
#include "commands.hpp"
#include "driver/child_process.hpp"
#include "scenarios/sanity/scenario.hpp"
#include "support/clock.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/run_program.hpp"
#include "support/workbench.hpp"

extern char** environ;

namespace gigabar::tool {
namespace {

constexpr int kVerdictDescriptor = 3;
constexpr std::size_t kMaxVerdictBytes = 65536;  // a pipe takes them whole

struct Options : DeviceOptions {
  std::vector<std::string> tests;
  bool is_verbose = false;
  bool has_no_summary = false;
  bool is_list = false;
  bool with_extended = false;
  double deadline_seconds = 120;
  std::string scenario;  // hidden: run this one here
  int peer_socket = -1;  // hidden: play the peer of a scenario
};

// A name of ours, or one of GDRCopy's.
bool is_named(const Scenario& scenario, const std::string& name) {
  const auto is_it = [&](const auto& word) { return std::ranges::equal(word, name); };
  return scenario.name == name || std::ranges::any_of(std::views::split(scenario.covers, ' '), is_it);
}

std::vector<const Scenario*> select_scenarios(const Options& options) {
  std::vector<const Scenario*> selected;
  const auto select = [&](const auto& is_wanted) {
    for (const Scenario& scenario : scenarios())
      if (is_wanted(scenario)) selected.push_back(&scenario);
  };
  if (options.tests.empty()) select([&](const Scenario& each) { return !each.is_extended || options.with_extended; });
  for (const std::string& name : options.tests) {
    const std::size_t before = selected.size();
    select([&](const Scenario& each) { return is_named(each, name); });
    if (selected.size() == before) refuse_usage(fmt::format("-t {}: no such scenario; 'gigabar sanity -l' lists them", name));
  }
  return selected;
}

// ---- in the scenario's process ----

std::vector<std::string> peer_words(int socket, int device) {
  return {"gigabar", "sanity", "--peer", std::to_string(socket), "-d", std::to_string(device)};
}

void run_one_here(const Options& options) {
  ::setpgid(0, 0);  // before anything is started, so that a deadline ends its children too
  const auto scenario = std::ranges::find(scenarios(), options.scenario, &Scenario::name);
  if (scenario == scenarios().end()) refuse_usage("--scenario: no such scenario");
  const Verdict verdict = judge(*scenario, Context(select_device(options), peer_words));
  const std::string line = verdict.word + " " + verdict.reason;
  if (write(kVerdictDescriptor, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    fail("the verdict could not be told");
}

// ---- in the process that runs them all ----

// Its process; what it says goes to the descriptor, of which it has the only one.
pid_t start(const Scenario& scenario, const Options& options, Descriptor told) {
  std::vector<std::string> words = {"gigabar", "sanity", "--scenario", scenario.name, "-d", std::to_string(options.device)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, told.get(), kVerdictDescriptor);
  pid_t process = 0;
  const int code = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, pointers_to(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) fail(fmt::format("cannot start a scenario: {}", std::strerror(code)));
  return process;
}

Verdict run_in_process(const Scenario& scenario, const Options& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) fail(fmt::format("pipe: {}", std::strerror(errno)));
  const Descriptor verdict_text(ends[0]);
  const pid_t process = start(scenario, options, Descriptor(ends[1]));
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(options.deadline_seconds * 1e9);
  const auto ended = ChildProcess(process).end_when([&] {
    const bool is_over = now_ns() >= end_ns;
    if (is_over) kill(-process, SIGKILL);  // with what it started: the number is its group's until it is waited for
    return is_over;
  });
  if (!ended) return {"fail", fmt::format("not done after {} s; it was ended", options.deadline_seconds)};
  const int status = *ended;
  if (WIFSIGNALED(status)) return {"fail", fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))};
  std::string line(kMaxVerdictBytes, '\0');
  line.resize(static_cast<std::size_t>(std::max<ssize_t>(read(verdict_text.get(), line.data(), line.size()), 0)));
  if (line.empty()) return {"fail", fmt::format("ended with status {} and without a verdict", WEXITSTATUS(status))};
  const std::size_t space = line.find(' ');
  Verdict verdict{line.substr(0, space), line.substr(space + 1)};
  if (verdict.word == "pass" && WEXITSTATUS(status) != 0)
    return {"fail", fmt::format("passed, then ended with status {}", WEXITSTATUS(status))};
  return verdict;
}

void list_scenarios(Report& report) {
  for (const Scenario& scenario : scenarios()) {
    report.print("{:<36} {}{}\n", scenario.name, scenario.what, scenario.is_extended ? " (extended)" : "");
    if (!scenario.covers.empty()) report.print("{:<36}   covers GDRCopy's {}\n", "", scenario.covers);
    report.add_result(
        {{"name", scenario.name}, {"what", scenario.what}, {"covers", scenario.covers}, {"is_extended", scenario.is_extended}});
  }
}

struct Tally {
  std::vector<std::string> passed, failed, waived;
};

void run_scenario(const Scenario& scenario, const Options& options, Report& report, Tally& tally) {
  if (options.is_verbose) report.print("run     {}: {}\n", scenario.name, scenario.what);
  report.show_progress("{}: {}", scenario.name, scenario.what);
  const std::uint64_t start_ns = monotonic_ns();
  const Verdict verdict = run_in_process(scenario, options);
  const double elapsed_seconds = static_cast<double>(monotonic_ns() - start_ns) / 1e9;
  report.print("{:<7} {}{}{}", verdict.word, scenario.name, stand_in_label(report.is_stand_in()),
               verdict.reason.empty() ? "" : ": " + verdict.reason);
  report.print("{}\n", options.is_verbose ? fmt::format(" ({:.2f} s)", elapsed_seconds) : "");
  (verdict.word == "pass" ? tally.passed : verdict.word == "waived" ? tally.waived : tally.failed).push_back(scenario.name);
  report.add_result({{"name", scenario.name},
                     {"verdict", verdict.word},
                     {"reason", verdict.reason},
                     {"covers", scenario.covers},
                     {"elapsed_us", elapsed_seconds * 1e6}});
}

void tell_summary(Report& report, const Tally& tally) {
  const std::size_t passed = tally.passed.size(), failed = tally.failed.size(), waived = tally.waived.size();
  report.print("\nTotal: {}, Passed: {}, Failed: {}, Waived: {}{}\n", passed + failed + waived, passed, failed, waived,
               stand_in_label(report.is_stand_in()));
  for (const std::string& name : tally.failed) report.print("failed: {}\n", name);
  for (const std::string& name : tally.waived) report.print("waived: {}\n", name);
}

void run_sanity(const Options& options, Invocation& invocation) {
  // The deadline of a scenario is the parent's, and the terminal's signals do not come to its group.
  if (!options.scenario.empty() || options.peer_socket >= 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!options.scenario.empty()) return run_one_here(options);
  if (options.peer_socket >= 0) return run_peer(options.peer_socket, select_device(options));
  Report report("sanity", invocation, options.json_path);
  if (options.is_list) {
    list_scenarios(report);
    return report.write();
  }
  report.set_device(select_device(options));
  const std::vector<const Scenario*> selected = select_scenarios(options);
  Tally tally;
  for (const Scenario* scenario : selected) run_scenario(*scenario, options, report, tally);
  if (!options.has_no_summary) tell_summary(report, tally);
  report.document()["summary"] = {
      {"passed", tally.passed.size()}, {"failed", tally.failed.size()}, {"waived", tally.waived.size()}};
  report.write();
  invocation.exit_status = tally.failed.empty() ? 0 : kExitFailed;
}

}  // namespace

void add_sanity(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "sanity", "Behaviours that programs rely on, through gdrapi.h and gigabar, each in its own process",
      run_sanity);
  add_device_option(command, options);
  command->add_option("-t,--test", options.tests, Value{"NAME"}, "Only this scenario, by our name or GDRCopy's; may be repeated")
      ->take_all();
  command->add_flag("-l,--list", options.is_list, "List the scenarios, and which of GDRCopy's tests each covers");
  command->add_flag("-e,--extended", options.with_extended, "Also the long scenarios");
  command->add_flag("-s,--no-summary", options.has_no_summary, "No summary at the end");
  command->add_flag("-v,--verbose", options.is_verbose, "Say what is run, and how long it took");
  command->add_option("--timeout,--deadline", options.deadline_seconds, seconds(3600),
                      "Of one scenario: one that takes longer is ended and has failed");
  add_json_option(command, options.json_path);
  command->add_option("--scenario", options.scenario)->group("");
  command->add_option("--peer", options.peer_socket)->check(whole_number(0, 1023))->group("");
  command->footer("Waived: what the scenario asks for does not exist here; the reason says what. Exit status 1 when one failed.");
}

}  // namespace gigabar::tool
