// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/pingpong.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "device_ranks/complaint.hpp"
#include "device_ranks/kernels.hpp"
#include "device_ranks/pair.hpp"
#include "device_ranks/pair_command.hpp"
#include "ranks/fabric_failure.hpp"
#include "support/clock.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::device_ranks {
namespace {

constexpr NotificationId kTurnNotification = 0;  // of the fabric, for what the CPU sends
constexpr std::uint32_t kUsualBlocks = 16;
constexpr ranks::SizeRange kUsualSizes{4096, std::uint64_t{4} << 20};

struct PingpongPlan {
  PingpongOptions options;
  std::vector<std::uint64_t> sizes;
  FabricOptions fabric;
};

PingpongPlan make_pingpong_plan(const PingpongOptions& options) {
  return {options, settle_sizes(options.sizes, kUsualSizes), ranks::fabric_options(options.fabric)};
}

struct Variant {
  Summary summary;
  Complaint complaint;
};

class PingpongSession {
 public:
  PingpongSession(const PingpongPlan& plan, const Invocation& invocation)
      : plan_(plan),
        options_(plan_.options),
        pair_("pingpong", plan.fabric, options_.fabric.timeout(), invocation, options_.json_path),
        clock_(SampleClock::calibrate()) {}

  Rank rank() const noexcept { return pair_.rank(); }
  Fabric& fabric() noexcept { return pair_.fabric(); }

  void run() {
    pair_.join();
    grid_ = make_grid(options_.grid, ScopeKind::block, kUsualBlocks, pair_.device().is_stand_in);
    pair_.agree(
        ranks::digest_of_text(fmt::format("pingpong {} {} {} {} {} {} {} {} {}", plan_.sizes.front(), plan_.sizes.back(),
                                          name_of(grid_.scope), grid_.block_count, grid_.threads_per_block, grid_.threads_per_unit,
                                          options_.work_us, round_count(), options_.fault_bytes.value_or(~std::uint64_t{0}))));
    require_room_for_samples(round_count(), grid_);
    pair_.open(2 * receive_offset(plan_.sizes.back()), std::max(kMinNotifications, grid_.unit_count()));
    if (pair_.report()) print_titles(*pair_.report());
    for (const std::uint64_t bytes : plan_.sizes) do_size(bytes);
    pair_.close();
    if (!first_wrong_.empty()) fail("wrong data: " + first_wrong_);
  }

 private:
  static constexpr std::uint32_t kMinNotifications = 64;
  static constexpr std::uint64_t kPage = 4096;

  static std::uint64_t receive_offset(std::uint64_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }
  std::uint32_t round_count() const noexcept { return options_.warm_up_count + options_.iteration_count; }
  void meet() { ranks::require_of_fabric(fabric().barrier({}, pair_.patience())); }

  void print_titles(Report& report) {
    report.print("# a round: both ranks compute for {} us, send and check; {}\n", options_.work_us, grid_text(grid_));
    report.print("# kernel: each {} sends its part at once. CPU: sends all of it when the kernel has ended\n",
                 name_of(grid_.scope));
    report.set_clock(clock_);
  }

  TurnPlan plan_of(std::uint64_t bytes) const {
    TurnPlan plan;
    plan.fabric = pair_.session().handle();
    plan.partner = pair_.partner();
    plan.is_active = rank() == 0;
    plan.round_count = round_count();
    plan.message_bytes = bytes;
    plan.part_stride_bytes = part_of(bytes, grid_);
    plan.receive_offset_bytes = receive_offset(bytes);
    plan.work_ns = options_.work_us * 1000;
    plan.plants_fault = options_.fault_bytes == bytes;
    plan.timeout_ns = pair_.kernel_timeout_ns();
    return plan;
  }

  void do_size(std::uint64_t bytes) {
    const TurnPlan plan = plan_of(bytes);
    tell_progress("kernels", plan);
    const Variant by_kernel = send_by_kernel(plan);
    tell_progress("CPUs", plan);
    const Variant by_cpu = send_by_cpu(plan);
    if (pair_.report()) tell(bytes, by_kernel, by_cpu);
  }

  void tell_progress(const char* who, const TurnPlan& plan) {
    if (pair_.report())
      pair_.report()->show_progress("{}: {} of {}", bytes_text(plan.message_bytes), counted(plan.round_count, "round"), who);
  }

  // --- By the kernel -------------------------------------------------------------------------------------------------------------

  Variant send_by_kernel(const TurnPlan& plan) {
    const KernelTask task{"pingpong of kernels", plan.message_bytes, plan.round_count};
    meet();
    const KernelRun run = take(run_turns(pair_.device(), plan, grid_));
    require_ended_well(rank(), task, run.ends);
    Variant variant;
    variant.complaint = gather_complaints(pair_, complaint_of(task, run.ends));
    if (plan.is_active) variant.summary = summarize_turns(run);
    return variant;
  }

  // A round is as long as its slowest unit's.
  Summary summarize_turns(const KernelRun& run) const {
    constexpr double kNsPerPs = 0.001;
    std::vector<std::uint64_t> rounds_ps(options_.iteration_count);
    for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
      if (run.ends[unit].elapsed_ticks == 0) continue;
      const double ps_per_tick =
          static_cast<double>(run.ends[unit].elapsed_ns) / static_cast<double>(run.ends[unit].elapsed_ticks) / kNsPerPs;
      const std::uint64_t* const samples = run.samples.data() + unit * round_count() + options_.warm_up_count;
      for (std::size_t i = 0; i < rounds_ps.size(); ++i) {
        rounds_ps[i] = std::max(rounds_ps[i], static_cast<std::uint64_t>(static_cast<double>(samples[i]) * ps_per_tick));
      }
    }
    return summarize(rounds_ps, kNsPerPs);
  }

  // --- By the CPU ----------------------------------------------------------------------------------------------------------------

  Variant send_by_cpu(const TurnPlan& plan) {
    const KernelTask task{"pingpong of CPUs", plan.message_bytes, plan.round_count};
    const auto kernel = take(open_turn_kernel(pair_.device(), plan, grid_));
    std::vector<std::uint64_t> samples;
    meet();
    const std::uint64_t begin_ns = monotonic_ns();
    for (std::uint32_t round = 0; round < plan.round_count; ++round) {
      const std::uint64_t ticks = plan.is_active ? active_turn(*kernel, plan, round) : passive_turn(*kernel, plan, round);
      if (round >= options_.warm_up_count) samples.push_back(ticks);
      if (monotonic_ns() - begin_ns > plan.timeout_ns) {
        fail(fmt::format("{} with {}: timed_out in round {}; take fewer rounds (-i) or a longer --timeout", task.name,
                         counted(task.bytes, "byte"), round));
      }
    }
    if (plan.is_active) require(kernel->run(plan.round_count - 1, kNoRound));
    Variant variant;
    variant.complaint = gather_complaints(pair_, complaint_of(task, take(kernel->ends())));
    if (plan.is_active) variant.summary = summarize(samples, clock_.ns_per_tick());
    return variant;
  }

  std::uint64_t active_turn(TurnKernel& kernel, const TurnPlan& plan, std::uint32_t round) {
    const std::uint64_t before = clock_.now();
    require(kernel.run(round == 0 ? kNoRound : round - 1, round));
    send(plan, round);
    take_turn(round);
    return clock_.now() - before;
  }

  std::uint64_t passive_turn(TurnKernel& kernel, const TurnPlan& plan, std::uint32_t round) {
    take_turn(round);
    require(kernel.run(round, round));
    send(plan, round);
    return 0;
  }

  void send(const TurnPlan& plan, std::uint32_t round) {
    pair_.send(0, plan.receive_offset_bytes, plan.message_bytes, kTurnNotification, round + 1);
  }
  void take_turn(std::uint32_t round) { pair_.take(kTurnNotification, round + 1); }

  // --- Results -------------------------------------------------------------------------------------------------------------------

  void tell(std::uint64_t bytes, const Variant& by_kernel, const Variant& by_cpu) {
    Report& report = *pair_.report();
    const double ratio = by_kernel.summary.p50_us > 0 ? by_cpu.summary.p50_us / by_kernel.summary.p50_us : 0.0;
    const std::uint64_t wrong_count = by_kernel.complaint.wrong_count + by_cpu.complaint.wrong_count;
    const auto us = [](double value) { return fmt::format("{:.2f}", value); };
    table_.add_row({std::to_string(bytes), us(by_kernel.summary.p50_us), us(by_kernel.summary.p99_us), us(by_cpu.summary.p50_us),
                    us(by_cpu.summary.p99_us), us(ratio), wrong_count == 0 ? "Pass" : "Fail", pair_.path()});
    report.print("{}", table_.take_text());
    Json json = {{"measure", "pingpong"},
                 {"bytes", bytes},
                 {"iterations", options_.iteration_count},
                 {"warm_up", options_.warm_up_count},
                 {"work_us", options_.work_us},
                 {"scope", name_of(grid_.scope)},
                 {"threads", grid_.threads_per_block},
                 {"blocks", grid_.block_count},
                 {"kernel", to_json(by_kernel.summary)},
                 {"cpu", to_json(by_cpu.summary)},
                 {"ratio", ratio},
                 {"path", pair_.path()},
                 {"wrong_count", wrong_count}};
    report.add_result(std::move(json));
    for (const Variant* variant : {&by_kernel, &by_cpu}) complain(report, variant->complaint, first_wrong_);
  }

  const PingpongPlan plan_;
  const PingpongOptions& options_;
  Pair pair_;
  const SampleClock clock_;
  Grid grid_;
  TextTable table_{{{"# Size", true},
                    {"kernel p50 (us)"},
                    {"kernel p99 (us)"},
                    {"CPU p50 (us)"},
                    {"CPU p99 (us)"},
                    {"Ratio"},
                    {"Validation"},
                    {"Path", true}}};
  std::string first_wrong_;
};

}  // namespace

void run_pingpong(const PingpongOptions& options, Invocation& invocation) {
  run_pair_command<PingpongSession>("pingpong", [&] { return make_pingpong_plan(options); }, invocation);
}

}  // namespace gigabar::tool::device_ranks
