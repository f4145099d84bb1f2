// SPDX-License-Identifier: Apache-2.0
// gigabar softhca: the software HCA under test by itself. Threads of the CPU post through device::Queue, as kernels do; proxies
// execute; every byte is checked; faults are made on demand.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "device/soft_hca/proxy_threads.hpp"
#include "scenarios/soft_hca/run.hpp"
#include "scenarios/soft_hca/verdict.hpp"
#include "softhca/results.hpp"
#include "streams/interrupt.hpp"
#include "streams/options.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace {

using namespace softhca;  // the command's own  NOLINT(google-build-using-namespace)

constexpr std::uint64_t kMaxRounds = 10'000'000;
constexpr unsigned kMaxTimeoutSeconds = 3600;

std::string shape_text(const Plan& plan) {
  const Options& options = plan.options;
  return fmt::format("{} of {}, sharing {}, {} CQ; {} as {}; {}", counted(options.queue_count, "queue"),
                     counted(options.slot_count, "slot"), name_of(plan.sharing), options.is_collapsed ? "collapsed" : "ordinary",
                     counted(options.thread_count, "thread"), options.scope == ScopeKind::block ? "one block" : "single threads",
                     counted(options.proxy_count, "proxy", "proxies"));
}

class Session {
 public:
  Session(const Plan& plan, const Invocation& invocation) : plan_(plan), report_("softhca", invocation, plan.options.json_path) {
    report_.set_line_prefix("# ");
    report_.print("# {}\n", shape_text(plan));
    report_.note("a software HCA in memory of this process: the figures say nothing about an HCA or a GPU");
    report_.document()["units"]["*million_per_s"] = "10^6 operations per second";
  }

  void run() {
    const streams::Interrupt interrupt;
    for (const Case& one : plan_.cases) {
      report_.show_progress("{} of {}, fault {}: case {} of {}", name_of(one.op), bytes_text(one.bytes), name_of(one.fault),
                            &one - plan_.cases.data() + 1, plan_.cases.size());
      tell(run_case(plan_, one, streams::Interrupt::flag()));
      if (streams::Interrupt::is_set()) break;
    }
    const bool is_interrupted = streams::Interrupt::is_set();
    report_.write();
    if (is_interrupted) throw CommandFailure(streams::kExitInterrupted, "interrupted; the figures are of what was done until then");
    if (!first_complaint_.empty()) fail(first_complaint_);
  }

 private:
  void tell(const CaseResult& result) {
    const Options& options = plan_.options;
    const std::string complaint = judge(plan_, result);
    report_.add_row(row_of(plan_, result, complaint));
    if (result.is.fault.kind != FaultKind::none) report_.print("#   {}\n", fault_line(options, result));
    if (complaint.empty()) return;
    const std::string line = fmt::format("{} of {}, fault {}: {}", name_of(result.is.op), counted(result.is.bytes, "byte"),
                                         name_of(result.is.fault), complaint);
    report_.print("# NOT AS EXPECTED: {}; {}\n", line, ends_text(result));
    if (first_complaint_.empty()) first_complaint_ = line;
  }

  const Plan& plan_;
  Report report_;
  std::string first_complaint_;
};

// As the help lists them.
template <class T, std::size_t N>
auto by_name(std::array<Named<T>, N> choices) {
  std::sort(choices.begin(), choices.end(), [](const auto& one, const auto& other) { return one.name < other.name; });
  return choices;
}

void add_work(const Command& command, Options& options) {
  command.add_choice("--op", options.op, by_name(kOps), "What the threads post")->default_str("all, in turns");
  command.add_option("-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX; inline writes take those up to 28")
      ->type_name("[MIN:]MAX")
      ->default_str("8:4K, with --fault 16");
  command.add_option("-i,--iterations", options.iteration_count, whole_number(1, kMaxRounds), "Timed rounds per size")
      ->default_str("1000, with --fault 100");
  command
      .add_option("-x,--warmup", options.warm_up_count, whole_number(0, kMaxRounds),
                  "Untimed rounds before the timed ones, without faults")
      ->default_str("100, with --fault 10");
  command.add_option("-W,--window-size", options.window, whole_number(1, kMaxWindow),
                     "Operations that a thread posts to each of its queues before it waits for them");
}

void add_shape(const Command& command, Options& options) {
  constexpr std::array kCompletions = {Named{true, "collapsed"}, Named{false, "ordinary"}};
  const auto add_number = [&](const char* name, std::uint32_t& target, std::uint64_t most, const char* description) {
    command.add_option(name, target, whole_number(1, most), description);
  };
  add_number("--queues", options.queue_count, soft_hca::kMaxQueues, "Queues; threads share them out");
  add_number("--threads", options.thread_count, kMaxThreads, "Threads that post");
  add_number("--proxies", options.proxy_count, soft_hca::ProxyThreads::kMaxThreads, "Threads that execute");
  add_number("--slots", options.slot_count, device::kMaxDepth, "Work requests of a ring, a power of two");
  command.add_choice("--scope", options.scope, by_name(kScopes),
                     "Whether each thread posts by itself, or all together as one block");
  command.add_choice("--sharing", options.sharing, by_name(kSharings), "Who shares a queue")
      ->default_str("exclusive, or device where threads share a queue");
  command.add_choice("--completions", options.is_collapsed, kCompletions, "One CQE that is written over and over, or a ring");
  command.add_flag("--confirm-reads", options.confirms_reads, "Each read is followed by a request that confirms its data");
}

void add_faults(const Command& command, Options& options) {
  constexpr std::array kPlants = {Named{Plant::data, "data"}, Named{Plant::guard, "guard"}, Named{Plant::error, "error"},
                                  Named{Plant::stall, "stall"}};
  const auto syndromes = by_name(kSyndromes);
  std::vector<std::string_view> names;
  for (const auto& each : syndromes) names.push_back(each.name);
  command
      .add_option("--fault", options.faults,
                  "Faults, each made in a run of its own, of every operation: " + fault_names() + "; or all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KIND[:N]");
  command
      .add_choice("--syndrome", options.syndrome, syndromes,
                  fmt::format("What the CQE of --fault error tells: one of {}", fmt::join(names, ", ")))
      ->type_name("NAME");
  command.add_option("--timeout", options.timeout_seconds, seconds(kMaxTimeoutSeconds),
                     "Of one wait: one that takes longer has failed");
  command
      .add_option_function("--timeout-ms",
                           [&options](const std::string& text) { options.timeout_seconds = std::stod(text) / 1000; })
      ->check([](std::string& text) {
        const std::string wrong = whole_number(1, std::uint64_t{1000} * kMaxTimeoutSeconds)(text);
        return wrong.empty() ? wrong : "--timeout-ms: " + wrong;
      })
      ->group("");  // its old name
  // Proves that the checks can fail.
  command.add_choice("--plant-fault", options.plant, kPlants)->group("");
}

}  // namespace

void add_softhca(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "softhca", "Self-test of the software HCA that serves kernels' queues: checked data, faults on demand",
      [](const Options& chosen, const Invocation& invoked) {
        const Plan plan = make_plan(chosen);
        Session(plan, invoked).run();
      });
  add_work(command, options);
  add_shape(command, options);
  add_faults(command, options);
  add_json_option(command, options.json_path);
  command->footer(
      "One process; no GPU, no network, no HCA. Exit status: 0 as documented, 1 wrong data, a wrong status, or a wait beyond its "
      "deadline, 2 the command line cannot be followed. Lines that do not begin with '#' are data.");
}

}  // namespace gigabar::tool
