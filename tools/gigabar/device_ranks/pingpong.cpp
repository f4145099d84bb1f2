// SPDX-License-Identifier: Apache-2.0
// gigabar pingpong: a message that each rank computes from round to round, sent by the kernel that computed it, and by the CPU when
// that kernel has ended; side by side.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/counted.hpp"
#include "base/fnv.hpp"
#include "base/rounding.hpp"
#include "commands.hpp"
#include "device_ranks/kernels.hpp"
#include "device_ranks/pair.hpp"
#include "support/clock.hpp"
#include "support/option_checks.hpp"

namespace gigabar::tool {
namespace device_ranks {
namespace {

constexpr NotificationId kTurnNotification = 0;  // of the fabric, for what the CPU sends
constexpr std::uint32_t kUsualBlocks = 16;
constexpr SizeRange kUsualSizes{4096, std::uint64_t{4} << 20};

struct PingpongOptions : ranks::JobOptions {
  std::string sizes;                         // -m, as typed
  std::vector<std::uint64_t> message_bytes;  // settled
  GridOptions grid;
  std::uint64_t work_us = 0;
  std::uint32_t iteration_count = 200;
  std::uint32_t warm_up_count = 20;
  std::optional<std::uint64_t> fault_bytes;
};

PingpongOptions settled_pingpong(PingpongOptions options) {
  options.message_bytes =
      sizes_of(settle_range("-m", options.sizes, {.usual = kUsualSizes, .unit = kWordBytes, .most = kMaxBytes}));
  options.fabric.options = ranks::fabric_options(options.fabric);
  return options;
}

struct Variant {
  Summary summary;
  Complaint complaint;
};

class PingpongSession : public Pair {
 public:
  PingpongSession(const PingpongOptions& options, const Invocation& invocation)
      : Pair("pingpong", options, invocation), options_(options), clock_(SampleClock::calibrate()) {}

  void run() {
    join_pair();
    grid_ = make_grid(options_.grid, ScopeKind::block, kUsualBlocks, device().is_stand_in);
    agree(fnv1a(fmt::format("pingpong {} {} {} {} {} {} {} {} {}", options_.message_bytes.front(), options_.message_bytes.back(),
                            name_of(grid_.scope), grid_.block_count, grid_.threads_per_block, grid_.threads_per_unit,
                            options_.work_us, round_count(), options_.fault_bytes.value_or(~std::uint64_t{0}))));
    require_room_for_samples(round_count(), grid_);
    add_rings(session_, std::min(part_of(options_.message_bytes.back(), grid_), kMessageLimitBytes), 1, grid_.unit_count());
    open(2 * receive_offset(options_.message_bytes.back()), grid_.unit_count(), session_);
    if (report() != nullptr) print_titles(*report());
    for (const std::uint64_t bytes : options_.message_bytes) do_size(bytes);
    close();
  }

 private:
  static std::uint64_t receive_offset(std::uint64_t bytes) noexcept { return round_up(bytes, kPage); }
  std::uint32_t round_count() const noexcept { return options_.warm_up_count + options_.iteration_count; }

  void print_titles(Report& report) {
    report.print("# a round: both ranks compute for {} us, send and check; {}\n", options_.work_us, grid_text(grid_));
    report.print(
        "# kernel: each {} sends its part at once, up to {} as a message. CPU: sends all of it when the kernel has ended\n",
        name_of(grid_.scope), bytes_text(kMessageLimitBytes));
    report.set_clock(clock_);
  }

  TurnPlan plan_of(std::uint64_t bytes) const {
    TurnPlan plan;
    static_cast<PairPlan&>(plan) = pair_plan();
    plan.is_active = rank() == 0;
    plan.round_count = round_count();
    plan.message_bytes = bytes;
    plan.part_stride_bytes = part_of(bytes, grid_);
    plan.receive_offset_bytes = receive_offset(bytes);
    plan.work_ns = options_.work_us * 1000;
    plan.plants_fault = options_.fault_bytes == bytes;
    return plan;
  }

  void do_size(std::uint64_t bytes) {
    const TurnPlan plan = plan_of(bytes);
    TurnPlan kernel_plan = plan;
    kernel_plan.uses_messages = are_for_messages(session_, plan.part_stride_bytes, 1);
    tell_progress("kernels", plan);
    const Variant by_kernel = send_by_kernel(kernel_plan);
    tell_progress("CPUs", plan);
    const Variant by_cpu = send_by_cpu(plan);
    if (report() != nullptr) tell(kernel_plan, by_kernel, by_cpu);
  }

  void tell_progress(const char* who, const TurnPlan& plan) {
    if (report() != nullptr)
      report()->show_progress("{}: {} of {}", bytes_text(plan.message_bytes), counted(plan.round_count, "round"), who);
  }

  // --- By the kernel -------------------------------------------------------------------------------------------------------------

  Variant send_by_kernel(const TurnPlan& plan) {
    const KernelTask task{"pingpong of kernels", plan.message_bytes, plan.round_count};
    meet();
    const KernelRun run = tool::take(run_turns(device(), plan, grid_));
    Variant variant;
    variant.complaint = gather_complaints(judge(task, run.ends));
    if (plan.is_active) variant.summary = summarize_turns(run);
    return variant;
  }

  // A round is as long as its slowest unit's.
  Summary summarize_turns(const KernelRun& run) const {
    std::vector<std::uint64_t> rounds_ps(options_.iteration_count);
    for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
      if (run.ends[unit].elapsed_ticks == 0) continue;
      const double ps_per_tick = ns_per_tick(run.ends[unit]) / kNsPerPs;
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
    const RepeatedKernel kernel = tool::take(open_turn_kernel(device(), plan, grid_));
    std::vector<std::uint64_t> samples;
    meet();
    const std::uint64_t begin_ns = monotonic_ns();
    for (std::uint32_t round = 0; round < plan.round_count; ++round) {
      const std::uint64_t ticks = plan.is_active ? active_turn(kernel, plan, round) : passive_turn(kernel, plan, round);
      if (round >= options_.warm_up_count) samples.push_back(ticks);
      if (monotonic_ns() - begin_ns > plan.timeout_ns) {
        fail(fmt::format("{} with {}: timed_out in round {}; take fewer rounds (-i) or a longer --timeout", task.name,
                         counted(task.bytes, "byte"), round));
      }
    }
    if (plan.is_active) require(kernel.run(plan.round_count - 1, kNoRound));
    Variant variant;
    variant.complaint = gather_complaints(judge(task, tool::take(kernel.ends())));
    if (plan.is_active) variant.summary = summarize(samples, clock_.ns_per_tick());
    return variant;
  }

  std::uint64_t active_turn(const RepeatedKernel& kernel, const TurnPlan& plan, std::uint32_t round) {
    const std::uint64_t before = clock_.now();
    require(kernel.run(round == 0 ? kNoRound : round - 1, round));
    send_turn(plan, round);
    take_turn(round);
    return clock_.now() - before;
  }

  std::uint64_t passive_turn(const RepeatedKernel& kernel, const TurnPlan& plan, std::uint32_t round) {
    take_turn(round);
    require(kernel.run(round, round));
    send_turn(plan, round);
    return 0;
  }

  void send_turn(const TurnPlan& plan, std::uint32_t round) {
    send(0, plan.receive_offset_bytes, plan.message_bytes, kTurnNotification, round + 1);
  }
  void take_turn(std::uint32_t round) { take(kTurnNotification, round + 1); }

  // --- Results -------------------------------------------------------------------------------------------------------------------

  void tell(const TurnPlan& plan, const Variant& by_kernel, const Variant& by_cpu) {
    const Summary& kernel = by_kernel.summary;
    const Summary& cpu = by_cpu.summary;
    const std::uint64_t wrong_count = by_kernel.complaint.wrong_count + by_cpu.complaint.wrong_count;
    Row row;
    row.add("measure", "pingpong").add("bytes", plan.message_bytes, "# Size", "{:<}").add("iterations", options_.iteration_count);
    row.add("warm_up", options_.warm_up_count).add("work_us", options_.work_us).add("scope", name_of(grid_.scope));
    row.add("threads", grid_.threads_per_block).add("blocks", grid_.block_count);
    row.add("kernel_way", plan.uses_messages ? "messages" : "writes");
    row.add("kernel", to_json(kernel)).add("cpu", to_json(cpu));
    row.show("kernel p50 (us)", kernel.p50_us, "{:.2f}").show("kernel p99 (us)", kernel.p99_us, "{:.2f}");
    row.show("CPU p50 (us)", cpu.p50_us, "{:.2f}").show("CPU p99 (us)", cpu.p99_us, "{:.2f}");
    row.add("ratio", kernel.p50_us > 0 ? cpu.p50_us / kernel.p50_us : 0.0, "Ratio", "{:.2f}");
    row.show("Validation", verdict_of(wrong_count)).add("path", path(), "Path", "{:<}").add("wrong_count", wrong_count);
    report()->add_row(row);
    for (const Variant* variant : {&by_kernel, &by_cpu}) complain(variant->complaint);
  }

  const PingpongOptions options_;
  const SampleClock clock_;
  Grid grid_;
  DeviceSessionOptions session_;
};

}  // namespace
}  // namespace device_ranks

void add_pingpong(const Command& program, Invocation& invocation) {
  using namespace device_ranks;  // the command's own  NOLINT(google-build-using-namespace)
  const auto [command, options] = ranks::add_pair_command<PingpongSession, PingpongOptions>(
      program, invocation, "pingpong", "Messages sent by the kernels that compute them, beside the same sent by the CPU",
      settled_pingpong);
  add_grid_options(command, options.grid, "block", kThreadsByScope, "16");
  add_sizes(command, options.sizes, "4K:4M");
  command->add_option("--work-us", options.work_us, whole_number(0, 1000000, "US"),
                      "Microseconds that each unit computes for, each turn");
  command->add_option("-i,--iterations", options.iteration_count, whole_number(1, 1000000), "Timed rounds per size");
  command->add_option("-x,--warmup", options.warm_up_count, whole_number(0, 1000000), "Untimed rounds before the timed ones");
  add_fault(command, options.fault_bytes);
  add_pair_options(command, options);
}

}  // namespace gigabar::tool
