// SPDX-License-Identifier: Apache-2.0
#include "softhca/command.hpp"

#include <fmt/format.h>

#include "base/counted.hpp"
#include "softhca/results.hpp"
#include "softhca/run.hpp"
#include "softhca/verdict.hpp"
#include "streams/interrupt.hpp"
#include "streams/options.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::softhca {
namespace {

std::string shape_text(const Plan& plan) {
  const Options& options = plan.options;
  return fmt::format("{} of {}, sharing {}, {} CQ; {} as {}; {}", counted(options.queue_count, "queue"),
                     counted(options.slot_count, "slot"), name_of(plan.sharing), options.is_collapsed ? "collapsed" : "ordinary",
                     counted(options.thread_count, "thread"), options.scope == ScopeKind::block ? "one block" : "lanes",
                     counted(options.proxy_count, "proxy", "proxies"));
}

class Session {
 public:
  Session(const Plan& plan, const Invocation& invocation)
      : plan_(plan), report_("softhca", invocation, plan.options.json_path), table_(make_table(plan)) {
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
      tell(run_case(plan_, one));
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
    table_.add_row(row_of(options, result, complaint));
    report_.print("{}", table_.take_text());
    if (result.is.fault.kind != FaultKind::none) report_.print("#   {}\n", fault_line(options, result));
    report_.add_result(to_json(plan_, result, complaint));
    if (complaint.empty()) return;
    const std::string line = fmt::format("{} of {}, fault {}: {}", name_of(result.is.op), counted(result.is.bytes, "byte"),
                                         name_of(result.is.fault), complaint);
    report_.print("# NOT AS EXPECTED: {}; {}\n", line, ends_text(result));
    if (first_complaint_.empty()) first_complaint_ = line;
  }

  const Plan& plan_;
  Report report_;
  TextTable table_;
  std::string first_complaint_;
};

}  // namespace

void run_command(const Options& options, const Invocation& invocation) {
  const Plan plan = make_plan(options);
  Session(plan, invocation).run();
}

}  // namespace gigabar::tool::softhca
