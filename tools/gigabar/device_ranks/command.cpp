// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "device_ranks/kernels.hpp"
#include "device_ranks/pair.hpp"
#include "device_ranks/pair_command.hpp"
#include "device_ranks/results.hpp"
#include "ranks/fabric_failure.hpp"

namespace gigabar::tool::device_ranks {
namespace {

// One rank, from opening the fabric to closing it. Rank 0 begins each round, takes the time and speaks.
class Session {
 public:
  Session(const Plan& plan, const Invocation& invocation)
      : plan_(plan),
        options_(plan_.options),
        pair_(command_of(options_.measure), plan.fabric, options_.fabric.timeout(), invocation, options_.json_path),
        table_(make_table(options_)) {}

  Rank rank() const noexcept { return pair_.rank(); }
  Fabric& fabric() noexcept { return pair_.fabric(); }

  void run() {
    pair_.join();
    grid_ = grid_of(options_, pair_.device().is_stand_in);
    for (const std::uint64_t size : plan_.sizes) require_room_for_samples(counts_for(options_, size).iterations, grid_);
    pair_.agree(digest_of(plan_, grid_));
    std::uint64_t bytes = 0;
    for (const std::uint64_t size : plan_.sizes) bytes = std::max(bytes, segment_bytes(layout_of(options_, grid_, size)));
    pair_.open(bytes, std::max(kMinNotifications, 2 * grid_.unit_count()), options_.queues);
    if (pair_.report()) print_titles(*pair_.report());
    for (const std::uint64_t size : plan_.sizes) do_size(size);
    pair_.close();
    if (!first_wrong_.empty()) fail("wrong data: " + first_wrong_);
  }

 private:
  static constexpr std::uint32_t kMinNotifications = 64;

  void print_titles(Report& report) {
    report.print("# {}\n", what_is_timed(options_));
    report.print("# {}\n", grid_text(grid_));
    report.document()["units"]["*gb_per_s"] = "10^9 bytes per second";
    report.document()["units"]["*million_per_s"] = "10^6 messages per second";
  }

  RoundPlan plan_of(std::uint64_t bytes) const {
    const ranks::Counts counts = counts_for(options_, bytes);
    RoundPlan plan = layout_of(options_, grid_, bytes);
    plan.fabric = pair_.session().handle();
    plan.partner = pair_.partner();
    plan.is_active = rank() == 0;
    plan.warm_up_count = counts.warm_up;
    plan.iteration_count = counts.iterations;
    plan.is_checked = options_.is_checked;
    plan.plants_fault = options_.fault_bytes == bytes;
    plan.timeout_ns = pair_.kernel_timeout_ns();
    return plan;
  }

  static KernelTask task_of(const RoundPlan& plan) {
    return {name_of(plan.op), plan.message_bytes, std::uint64_t{plan.warm_up_count} + plan.iteration_count};
  }

  // Reads, atomics and writes that nobody checks need nobody at the partner.
  bool has_kernel(const RoundPlan& plan) const {
    if (plan.is_active) return true;
    if (plan.op == Op::read || plan.op == Op::fetch_add || plan.op == Op::compare_swap) return false;
    return plan.measure != Measure::rate || plan.op != Op::write || plan.is_checked;
  }

  KernelRun run_kernel(const RoundPlan& plan) {
    KernelRun run = take(run_rounds(pair_.device(), plan, grid_));
    require_ended_well(rank(), task_of(plan), run.ends);
    return run;
  }

  void meet() { ranks::require_of_fabric(fabric().barrier({}, pair_.patience())); }

  // What the partner reads, once for all rounds.
  void fill(RoundPlan plan) {
    plan.only_fills = true;
    run_kernel(plan);
  }

  void do_size(std::uint64_t bytes) {
    const RoundPlan plan = plan_of(bytes);
    if (pair_.report()) pair_.report()->show_progress("{}: {}", bytes_text(bytes), counted(plan.iteration_count, "round"));
    meet();
    if (plan.op == Op::read && plan.is_checked) {
      if (!plan.is_active) fill(plan);
      meet();
    }
    KernelRun run;
    if (has_kernel(plan)) run = run_kernel(plan);
    const Complaint complaint = gather_complaints(pair_, complaint_of(task_of(plan), run.ends));
    if (!pair_.report()) return;
    SizeResult result = summarize_rounds(plan, bytes, run);
    result.complaint = complaint;
    tell(result);
  }

  void tell(const SizeResult& result) {
    Report& report = *pair_.report();
    table_.add_row(row_of(options_, result, pair_.path()));
    report.print("{}", table_.take_text());
    report.add_result(to_json(options_, grid_, result, pair_.path()));
    complain(report, result.complaint, first_wrong_);
  }

  const Plan plan_;
  const Options& options_;
  Pair pair_;
  Grid grid_;
  TextTable table_;
  std::string first_wrong_;
};

}  // namespace

void run_command(const Options& options, Invocation& invocation) {
  run_pair_command<Session>(command_of(options.measure), [&] { return make_plan(options); }, invocation);
}

}  // namespace gigabar::tool::device_ranks
