// SPDX-License-Identifier: Apache-2.0
// gigabar softhca: the software HCA under test by itself. Threads of the CPU post through device::Queue, as kernels do; proxies
// execute; every byte is checked; faults are made on demand.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "commands.hpp"
#include "device/soft_hca/soft_hca.hpp"
#include "scenarios/soft_hca/run.hpp"
#include "scenarios/soft_hca/verdict.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

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

// --- How a case is shown: a row, and a line about its fault ---------------------------------------------------------------------

constexpr std::size_t kMaxListed = 1000;

// A dash where nothing was measured: every round had a fault.
std::string figure_text(const CaseResult& result, double value) {
  if (result.summary.sample_count == 0) return "-";
  return value < 1 ? fmt::format("{:.3g}", value) : fmt::format("{:.2f}", value);
}

Json to_json(const NotOk& one) {
  const Operation& operation = one.operation;
  return {{"thread", one.thread},
          {"queue", one.queue},
          {"operation", operation.number},
          {"is_posted", operation.is_posted},
          {"first", name_of(operation.first)},
          {"last", name_of(operation.last)},
          {"syndrome", operation.syndrome == Syndrome::none ? Json() : Json(name_of(operation.syndrome))}};
}

Json to_json(const QueueFacts& facts) {
  const soft_hca::QueueStatistics& statistics = facts.statistics;
  return {{"ok", facts.ok_count},    {"work_requests", statistics.work_requests}, {"doorbells", statistics.doorbells},
          {"cqes", statistics.cqes}, {"error_cqes", statistics.error_cqes},       {"has_wrapped", facts.has_wrapped}};
}

Json fault_to_json(const Options& options, const CaseResult& result) {
  const Fault& fault = result.is.fault;
  if (fault.kind == FaultKind::none) return {};
  Json json = {{"kind", name_of(fault.kind)}, {"value", fault.value}};
  for (const auto& [count, name] : kFaultCounts) json["injected"][name] = result.faults.*count;
  json["expected"] = expectation_of(fault.kind, options.confirms_reads);
  if (fault.kind == FaultKind::error) json["syndrome"] = name_of(options.syndrome);
  if (fault.kind == FaultKind::reorder) json["overtaken"] = result.overtaken_count;
  if (fault.kind == FaultKind::late_read) json["early_reads"] = result.stale_count;
  return json;
}

// Rows come one by one: a column of names is as wide as the longest.
template <class Of>
std::string names_form(const Plan& plan, const Of& of) {
  std::size_t width = 0;
  for (const Case& one : plan.cases) width = std::max(width, of(one).size());
  return fmt::format("{{:<{}}}", width);
}

Row row_of(const Plan& plan, const CaseResult& result, const std::string& complaint) {
  const Options& options = plan.options;
  const auto convert = [](const auto& one) { return to_json(one); };
  const std::span not_ok = std::span(result.not_ok).first(std::min(result.not_ok.size(), kMaxListed));
  Row row;
  row.add("op", name_of(result.is.op), "# op", names_form(plan, [](const Case& one) { return name_of(one.op); }));
  row.add("bytes", result.is.bytes, "bytes").add("queues", options.queue_count, "queues");
  row.add("threads", options.thread_count, "threads").add("scope", name_of(options.scope)).add("sharing", name_of(plan.sharing));
  row.add("completions", options.is_collapsed ? "collapsed" : "ordinary").add("confirms_reads", options.confirms_reads);
  row.add("slots", options.slot_count).add("proxies", options.proxy_count).add("window", result.is.window);
  row.add("iterations", result.is.iterations).add("warm_up", result.is.warm_up).add("timeout_seconds", options.timeout_seconds);
  row.add("operations", result.operations, "operations").add("failed", result.failed_count, "failed");
  row.add("ends", result.ends).add("not_ok", list_of(not_ok, convert)).merge(tool::to_json(result.summary));
  row.show("p50 (us)", figure_text(result, result.summary.p50_us)).show("p99 (us)", figure_text(result, result.summary.p99_us));
  row.add("million_per_s", result.million_per_s).show("M/s", figure_text(result, result.million_per_s));
  row.add("fault", fault_to_json(options, result));
  row.show("fault", name_of(result.is.fault), names_form(plan, [](const Case& one) { return name_of(one.fault); }));
  row.add("by_queue", list_of(result.queues, convert)).add("wrong_count", result.wrong_count);
  row.add("is_as_expected", result.was_interrupted ? Json() : Json(complaint.empty()));
  if (!complaint.empty()) row.add("complaint", complaint);
  row.show("Verdict", result.was_interrupted ? "-" : verdict_of(complaint.empty() ? 0 : 1), "{:<}");
  return row;
}

// "error:3: 1 request failed; 2 ok; 1 peer_lost (retries_exceeded); expected: ..."
std::string fault_line(const Options& options, const CaseResult& result) {
  const Fault& fault = result.is.fault;
  std::string text = name_of(fault) + ": ";
  const std::string effect = effect_text(fault.kind, result.faults);
  if (!effect.empty()) text += effect + "; ";
  if (fault.kind == FaultKind::reorder) text += fmt::format("overtaken: {}; ", result.overtaken_count);
  if (fault.kind == FaultKind::late_read) text += fmt::format("ended before their data: {}; ", result.stale_count);
  return text + fmt::format("{}; expected: {}", ends_text(result), expectation_of(fault.kind, options.confirms_reads));
}

// What is not as documented; empty when all of it is.
std::string tell(const Plan& plan, const CaseResult& result, Report& report) {
  const std::string complaint = judge(plan, result);
  report.add_row(row_of(plan, result, complaint));
  if (result.is.fault.kind != FaultKind::none) report.print("#   {}\n", fault_line(plan.options, result));
  if (complaint.empty()) return {};
  std::string line = fmt::format("{} of {}, fault {}: {}", name_of(result.is.op), counted(result.is.bytes, "byte"),
                                 name_of(result.is.fault), complaint);
  report.print("# NOT AS EXPECTED: {}; {}\n", line, ends_text(result));
  return line;
}

void run_softhca(const Options& options, const Invocation& invocation) {
  const Plan plan = make_plan(options);
  Report report("softhca", invocation, options.json_path);
  report.set_line_prefix("# ");
  report.print("# {}\n", shape_text(plan));
  report.note("a software HCA in memory of this process: the figures say nothing about an HCA or a GPU");
  report.document()["units"]["*million_per_s"] = "10^6 operations per second";
  const Interrupt interrupt;
  std::string first_complaint;
  for (const Case& one : plan.cases) {
    report.show_progress("{} of {}, fault {}: case {} of {}", name_of(one.op), bytes_text(one.bytes), name_of(one.fault),
                         &one - plan.cases.data() + 1, plan.cases.size());
    const std::string complaint = tell(plan, run_case(plan, one, Interrupt::flag()), report);
    if (first_complaint.empty()) first_complaint = complaint;
    if (Interrupt::is_set()) break;
  }
  const bool is_interrupted = Interrupt::is_set();
  report.write();
  if (is_interrupted) throw CommandFailure(kExitInterrupted, "interrupted; the figures are of what was done until then");
  if (!first_complaint.empty()) fail(first_complaint);
}

// --- Options --------------------------------------------------------------------------------------------------------------------

void add_work(const Command& command, Options& options) {
  auto operations = kOps;
  std::ranges::sort(operations, {}, &Named<Op>::name);
  command.add_choice("--op", options.op, operations, "What the threads post")->default_str("all, in turns");
  add_range_option(command, "-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX; inline writes take those up to 28",
                   "8:4K, with --fault 16");
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
  command.add_choice("--scope", options.scope, kScopes, "Whether each thread posts by itself, or all together as one block");
  command.add_choice("--sharing", options.sharing, kSharings, "Who shares a queue")
      ->default_str("exclusive, or device where threads share a queue");
  command.add_choice("--completions", options.is_collapsed, kCompletions, "One CQE that is written over and over, or a ring");
  command.add_flag("--confirm-reads", options.confirms_reads, "Each read is followed by a request that confirms its data");
}

void add_faults(const Command& command, Options& options) {
  constexpr std::array kPlants = {Named{Plant::data, "data"}, Named{Plant::guard, "guard"}, Named{Plant::error, "error"},
                                  Named{Plant::stall, "stall"}};
  command
      .add_option("--fault", options.faults, Value{"KIND[:N]"},
                  "Faults, each made in a run of its own, of every operation: " + fault_names() + "; or all")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_choice("--syndrome", options.syndrome, kSyndromes,
                  "What the CQE of --fault error tells: one of " + joined(kSyndromes, ", ", &Named<Syndrome>::name))
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
      run_softhca);
  add_work(command, options);
  add_shape(command, options);
  add_faults(command, options);
  add_json_option(command, options.json_path);
  command->footer(
      "One process; no GPU, no network, no HCA. Exit status: 0 as documented, 1 wrong data, a wrong status, or a wait beyond its "
      "deadline, 2 the command line cannot be followed. Lines that do not begin with '#' are data.");
}

}  // namespace gigabar::tool
