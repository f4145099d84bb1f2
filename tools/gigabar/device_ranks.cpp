// SPDX-License-Identifier: Apache-2.0
// gigabar device-latency, device-bw, device-rate: what kernels of one GPU reach by themselves at the other rank's, timed in the
// kernel.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/counted.hpp"
#include "base/rounding.hpp"
#include "commands.hpp"
#include "device_ranks/pair.hpp"
#include "device_ranks/unit.hpp"
#include "support/options.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool {
namespace device_ranks {
namespace {

// --- What is asked for, as far as the command line alone tells ------------------------------------------------------------------

constexpr std::array<Named<Measure>, 3> kCommands = {
    {{Measure::latency, "device-latency"}, {Measure::bandwidth, "device-bw"}, {Measure::rate, "device-rate"}}};
std::string_view command_of(Measure measure) noexcept { return name_in(kCommands, measure); }

constexpr std::array<Named<Op>, 12> kOps = {{{Op::notify, "notify"},
                                             {Op::notify_ordered, "notify-ordered"},
                                             {Op::payload, "payload"},
                                             {Op::write, "write"},
                                             {Op::write_notify, "write-notify"},
                                             {Op::write_count, "write-count"},
                                             {Op::message, "message"},
                                             {Op::reply, "reply"},
                                             {Op::read, "read"},
                                             {Op::fetch_add, "fetch-add"},
                                             {Op::compare_swap, "compare-swap"},
                                             {Op::barrier, "barrier"}}};
std::string_view name_of(Op op) noexcept { return name_in(kOps, op); }

// Those of --op; the first is the default.
std::vector<Named<Op>> ops_of(Measure measure) {
  std::vector<Named<Op>> ops(kOps.begin(), kOps.end());
  std::erase_if(ops, [measure](const Named<Op>& each) {
    const Op op = each.value;
    if (measure == Measure::latency) return op == Op::write;
    if (op == Op::write || op == Op::message) return false;
    return measure == Measure::rate ? op != Op::notify && op != Op::write_notify : op != Op::read;
  });
  return ops;
}

bool is_by_rings(Op op) noexcept { return op == Op::message || op == Op::reply; }
// Whether messages have a size that is chosen.
bool has_sizes(Op op) noexcept {
  return op == Op::write || op == Op::read || op == Op::write_notify || op == Op::write_count || is_by_rings(op);
}

struct Options : ranks::RoundOptions {
  Measure measure = Measure::latency;
  Op op = Op::notify;
  std::vector<std::uint64_t> message_bytes;  // settled; {0}: messages have no size
  GridOptions grid;
  DeviceSessionOptions queues;  // queue_count to the partner, though its memory is in reach; 0: none, and the rest is not used
};

void settle_message_sizes(Options& options) {
  constexpr std::uint64_t kUsualBytes = std::uint64_t{64} << 20;
  if (!has_sizes(options.op)) {
    if (!options.sizes.empty()) {
      refuse_usage(fmt::format("-m {}: --op {} has no size to choose; leave -m out", options.sizes, name_of(options.op)));
    }
    options.message_bytes = {0};
    return;
  }
  // What is answered word by word is one piece of a ring.
  const std::uint64_t most = options.op == Op::reply ? kMessageLimitBytes : kMaxBytes;
  const SizeRange usual = options.measure == Measure::rate ? SizeRange{8, 8} : SizeRange{kWordBytes, std::min(most, kUsualBytes)};
  options.message_bytes = sizes_of(settle_range("-m", options.sizes, {.usual = usual, .unit = kWordBytes, .most = most}));
}

void settle_grid(const Options& options) {
  const bool is_one = options.measure == Measure::latency;
  const bool is_of_blocks = options.grid.scope == ScopeKind::blocks;
  if (is_one && options.grid.block_count && !is_of_blocks) {
    refuse_usage(fmt::format("--blocks {}: a latency is that of one scope; choose --scope blocks, or leave --blocks out",
                             *options.grid.block_count));
  }
  if (is_of_blocks && !has_sizes(options.op)) {
    refuse_usage(
        fmt::format("--scope blocks: --op {} has nothing that blocks could share; choose another scope", name_of(options.op)));
  }
  const bool is_by_stores = is_of_blocks || options.op == Op::write_count || is_by_rings(options.op);
  if (is_by_stores && options.queues.queue_count != 0) {
    refuse_usage(fmt::format("--queues {}: {} is by loads and stores; leave --queues out", options.queues.queue_count,
                             is_of_blocks ? "--scope blocks" : fmt::format("--op {}", name_of(options.op))));
  }
  if (is_one && options.grid.thread_count && options.grid.scope != ScopeKind::block && !is_of_blocks) {
    refuse_usage(fmt::format("--threads {}: a latency is that of one scope; choose --scope block, or leave --threads out",
                             *options.grid.thread_count));
  }
}

// Everything but the device. Ends the command as bad usage where options contradict each other.
Options settled(Options options) {
  settle_message_sizes(options);
  settle_grid(options);
  options.fabric.options = ranks::fabric_options(options.fabric);
  return options;
}

Grid grid_of(const Options& options, bool is_stand_in) {
  const bool is_small = options.measure == Measure::rate || !has_sizes(options.op);
  constexpr std::uint32_t kBlocksOfAScope = 8;  // fill NVLink
  const std::uint32_t blocks = options.grid.scope == ScopeKind::blocks ? kBlocksOfAScope
                               : options.measure == Measure::bandwidth ? 64
                                                                       : 1;
  return make_grid(options.grid, is_small ? ScopeKind::thread : ScopeKind::block, blocks, is_stand_in);
}

ranks::Counts counts_for(const Options& options, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kVeryLargeBytes = std::uint64_t{1} << 20;
  const bool is_large = bytes > ranks::kLargeBytes;
  if (options.measure != Measure::latency) return options.counts(is_large ? ranks::Counts{20, 2} : ranks::Counts{100, 10});
  if (bytes > kVeryLargeBytes) return options.counts({100, 10});
  return options.counts(is_large ? ranks::Counts{1000, 100} : ranks::Counts{10000, 1000});
}

// Who else uses a unit's queue: units take the queues in turn.
device::Sharing sharing_of(const RoundPlan& plan, const Grid& grid) noexcept {
  // A flush goes to the queues of all.
  if (plan.ends_with_flush() || plan.op == Op::barrier) return device::Sharing::device;
  if (plan.unit_count <= plan.queue_count) return device::Sharing::exclusive;
  return grid.block_count == 1 ? device::Sharing::block : device::Sharing::device;
}

constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{64} << 20;  // of a window, all slots together
constexpr std::uint32_t kShortRoundsPerLook = 64;                    // a look at the clock takes about as long as a short round
constexpr std::uint64_t kGuardBytes = 64;                            // between slots

// Of messages of one size, as far as the options tell; the rest is the session's to fill in.
RoundPlan plan_of(const Options& options, const Grid& grid, std::uint64_t bytes) noexcept {
  const std::uint64_t units = grid.unit_count();
  const ranks::Counts counts = counts_for(options, bytes);
  RoundPlan plan;
  plan.measure = options.measure;
  plan.op = options.op;
  plan.warm_up_count = counts.warm_up;
  plan.iteration_count = counts.iterations;
  plan.is_checked = options.is_checked;
  plan.plants_fault = options.fault_bytes == bytes;
  plan.unit_count = grid.unit_count();
  plan.is_of_blocks = grid.scope == ScopeKind::blocks;
  plan.window = options.measure == Measure::latency ? 1 : options.window;
  plan.queue_count = options.queues.queue_count;
  plan.sharing = sharing_of(plan, grid);
  if (options.measure == Measure::rate) {
    // Each unit's messages are whole.
    plan.part_bytes = bytes;
    plan.part_stride_bytes = round_up(bytes, kPartUnit);
    plan.message_bytes = plan.part_stride_bytes * units;
  } else {
    plan.message_bytes = bytes;
    plan.part_bytes = plan.part_stride_bytes = part_of(bytes, grid);
  }
  plan.slot_stride_bytes = round_up(plan.message_bytes + kGuardBytes, kPartUnit);
  if (options.is_checked && plan.window > 1) {
    plan.slot_count =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kMaxCheckedBytes / plan.slot_stride_bytes, 1, plan.window));
  }
  plan.receive_offset_bytes = round_up(plan.slot_count * plan.slot_stride_bytes, kPage);
  plan.words_offset_bytes = 2 * plan.receive_offset_bytes;
  const std::uint64_t window_bytes = plan.message_bytes * plan.window;
  plan.rounds_per_look = window_bytes > ranks::kLargeBytes ? 1 : kShortRoundsPerLook;
  return plan;
}

// --- From the samples of units to the figures of one size -----------------------------------------------------------------------

// A round trip is two ways.
bool is_halved(Measure measure, Op op) noexcept {
  return measure == Measure::latency && op != Op::read && op != Op::barrier && !is_atomic(op);
}

bool is_active_unit(const UnitEnd& end) noexcept { return end.rounds_done != 0; }

std::string figure_text(double value) {
  if (value < 1) return fmt::format("{:.3g}", value);
  return value < 10 ? fmt::format("{:.3f}", value) : fmt::format("{:.2f}", value);
}

// Of each unit's rounds.
std::vector<std::uint64_t> single_rounds_ps(const RoundPlan& plan, const KernelRun& run) {
  std::vector<std::uint64_t> samples;
  const double share = is_halved(plan.measure, plan.op) ? 0.5 : 1.0;
  for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
    if (!is_active_unit(run.ends[unit])) continue;
    const double ps_per_tick = ns_per_tick(run.ends[unit]) * share / kNsPerPs;
    for (std::uint32_t i = 0; i < plan.iteration_count; ++i) {
      const auto ticks = static_cast<double>(run.samples[unit * plan.iteration_count + i]);
      samples.push_back(static_cast<std::uint64_t>(ticks * ps_per_tick));
    }
  }
  return samples;
}

// A round of all units ends with that of the last one: from one such end to the next, and the first from when the first unit began.
// Together they are the whole time, however unlike the units were.
std::vector<std::uint64_t> common_rounds_ps(const RoundPlan& plan, const KernelRun& run) {
  constexpr std::uint64_t kPsPerNs = 1000;
  std::uint64_t before_ns = ~std::uint64_t{0};
  std::vector<std::uint64_t> round_ends_ns(plan.iteration_count);
  for (std::size_t unit = 0; unit < run.ends.size(); ++unit) {
    if (!is_active_unit(run.ends[unit])) continue;
    before_ns = std::min(before_ns, run.ends[unit].timed_from_ns);
    for (std::uint32_t i = 0; i < plan.iteration_count; ++i)
      round_ends_ns[i] = std::max(round_ends_ns[i], run.samples[unit * plan.iteration_count + i]);
  }
  std::vector<std::uint64_t> samples;
  for (const std::uint64_t end_ns : round_ends_ns) {
    samples.push_back(end_ns > before_ns ? (end_ns - before_ns) * kPsPerNs : 0);
    before_ns = std::max(before_ns, end_ns);
  }
  return samples;
}

std::string what_is_timed(const Options& options) {
  const std::string_view op = name_of(options.op);
  if (options.measure == Measure::latency) {
    const bool is_half = is_halved(options.measure, options.op);
    return fmt::format("{}: {}", op, is_half ? "half of a round trip, in the kernel" : "a whole operation, in the kernel");
  }
  if (options.op == Op::read) return "read: windows of reads";
  const bool ends_with_flush = options.measure == Measure::rate && options.op == Op::write;
  return fmt::format("{}: windows of {}, each ended by {}", op, options.window,
                     ends_with_flush             ? "a flush"
                     : options.op == Op::message ? "an answer"
                                                 : "a notification and its answer");
}

// Of messages of `bytes`, as asked for. The figure is the mean in microseconds, GB/s, or million messages per second; p50 and p99
// are of the samples, in the same unit: 99 of 100 are at least as good as p99. Samples are half a round trip or a whole one of
// single units, or a window of all units together.
Row row_of(const RoundPlan& plan, const Grid& grid, std::uint64_t bytes, const KernelRun& run, const Complaint& complaint,
           const std::string& path) {
  const bool is_latency = plan.measure == Measure::latency, is_rate = plan.measure == Measure::rate;
  const auto first = std::find_if(run.ends.begin(), run.ends.end(), is_active_unit);
  const auto unit_count = static_cast<std::uint32_t>(std::count_if(first, run.ends.end(), is_active_unit));  // with a part
  std::vector<std::uint64_t> samples_ps = plan.takes_end_times() ? common_rounds_ps(plan, run) : single_rounds_ps(plan, run);
  const Summary summary = summarize(samples_ps, kNsPerPs);
  // What one round of all units moves. Bytes per nanosecond are GB/s, messages per microsecond are millions per second.
  const double window = plan.window;
  const double amount = is_rate ? unit_count * window : static_cast<double>(plan.message_bytes) * window * 1e-3;
  const auto figure_of = [&](double us) { return is_latency ? us : us > 0 ? amount / us : 0.0; };
  const double figure = figure_of(summary.mean_us), p50 = figure_of(summary.p50_us), p99 = figure_of(summary.p99_us);
  const std::string unit = is_latency ? "us" : is_rate ? "M/s" : "GB/s";
  Row row;
  row.add("measure", command_of(plan.measure)).add("op", name_of(plan.op)).add("bytes", bytes, "# Size", "{:<}");
  row.add("iterations", plan.iteration_count).add("warm_up", plan.warm_up_count).add("scope", name_of(grid.scope));
  row.add("threads", grid.threads_per_block).add("blocks", grid.block_count).add("units", unit_count);
  row.add("ns_per_tick", first != run.ends.end() ? ns_per_tick(*first) : 0.0).merge(to_json(summary));
  row.show(is_latency ? "mean (us)" : is_rate ? "million messages/s" : "GB/s", figure_text(figure));
  if (is_latency) row.show("min (us)", figure_text(summary.min_us));
  row.show("p50 (" + unit + ")", figure_text(p50)).show("p99 (" + unit + ")", figure_text(p99));
  if (plan.measure == Measure::bandwidth) row.add("gb_per_s", figure).add("p50_gb_per_s", p50).add("p99_gb_per_s", p99);
  if (is_rate) row.add("million_per_s", figure).add("p50_million_per_s", p50).add("p99_million_per_s", p99);
  if (!is_latency) row.add("window", plan.window);
  if (plan.is_checked) row.show("Validation", verdict_of(complaint.wrong_count));
  row.add("path", path, "Path", "{:<}").add("is_checked", plan.is_checked).add("wrong_count", complaint.wrong_count);
  if (complaint.wrong_count != 0) row.add("first_wrong", complaint.first_wrong);
  return row;
}

// --- One rank: rank 0 begins each round and takes the time ----------------------------------------------------------------------

class Session : public Pair {
 public:
  Session(const Options& options, const Invocation& invocation)
      : Pair(command_of(options.measure), options, invocation), options_(options) {}

  void run() {
    join_pair();
    grid_ = grid_of(options_, device().is_stand_in);
    // Of the segment: places of all sizes, and a word of each unit.
    std::uint64_t bytes = 0;
    for (const std::uint64_t size : options_.message_bytes) {
      const RoundPlan plan = plan_of(options_, grid_, size);
      require_room_for_samples(plan.iteration_count, grid_);
      bytes = std::max(bytes, plan.words_offset_bytes + round_up(plan.unit_count * sizeof(std::uint64_t), kPage));
    }
    agree(command_of(options_.measure), name_of(options_.op), options_.message_bytes.front(), options_.message_bytes.back(),
          name_of(grid_.scope), grid_.block_count, grid_.threads_per_block, grid_.threads_per_unit,
          options_.iteration_count.value_or(0), options_.warm_up_count.value_or(~0U), options_.window, options_.is_checked,
          options_.fault_bytes.value_or(~std::uint64_t{0}), options_.queues.queue_count);
    choose_session();
    open(bytes, 2 * grid_.unit_count());
    if (report() != nullptr) print_titles(*report());
    for (const std::uint64_t size : options_.message_bytes) do_size(size);
    close();
  }

 private:
  // With rings for windows as far as memory allows.
  void choose_session() {
    if (options_.queues.queue_count != 0) {
      session_options_ = options_.queues;
      session_options_.queues = QueueUse::always;
    }
    if (!is_by_rings(options_.op)) return;
    if (grid_.unit_count() > kMaxRings) {
      refuse_usage(fmt::format("--op {}: {} units, and rings for {} at most; use fewer --blocks or --threads", name_of(options_.op),
                               grid_.unit_count(), kMaxRings));
    }
    const RoundPlan largest = plan_of(options_, grid_, options_.message_bytes.back());
    add_rings(session_options_, largest.part_bytes, largest.window, grid_.unit_count());
  }

  void print_titles(Report& report) {
    report.print("# {}\n", what_is_timed(options_));
    report.print("# {}\n", grid_text(grid_));
    report.document()["units"]["*gb_per_s"] = "10^9 bytes per second";
    report.document()["units"]["*million_per_s"] = "10^6 messages per second";
  }

  // Reads, atomics and writes that nobody checks need nobody at the partner.
  bool has_kernel(const RoundPlan& plan) const {
    if (plan.is_active || is_atomic(plan.op)) return plan.is_active;
    return plan.is_checked || (plan.op != Op::read && !plan.ends_with_flush());
  }

  void do_size(std::uint64_t bytes) {
    RoundPlan plan = plan_of(options_, grid_, bytes);
    static_cast<PairPlan&>(plan) = pair_plan();
    plan.is_active = rank() == 0;
    plan.counter_base = counted_;
    if (report() != nullptr) report()->show_progress("{}: {}", bytes_text(bytes), counted(plan.iteration_count, "round"));
    meet();
    // The partner first puts in place what is read, once for all rounds.
    const bool reads_checked = plan.op == Op::read && plan.is_checked;
    if (reads_checked && plan.is_active) meet();
    KernelRun run;
    if (has_kernel(plan)) run = tool::take(run_rounds(device(), plan, grid_));
    if (plan.op == Op::write_count) counted_ += plan.round_count();
    const Complaint own = judge(name_of(plan.op), plan.message_bytes, plan.round_count(), run.ends);
    if (reads_checked && !plan.is_active) meet();
    const Complaint complaint = gather_complaints(own);
    if (report() == nullptr) return;
    report()->add_row(row_of(plan, grid_, bytes, run, complaint, path()));
    complain(complaint);
  }

  const Options options_;
  Grid grid_;
  std::uint32_t counted_ = 0;  // calls of write_count, each way
};

// --- Options --------------------------------------------------------------------------------------------------------------------

constexpr std::uint32_t kMaxWindow = 65536, kMaxQueues = 16, kMaxProxies = 12;

void add_queues(const Command& command, DeviceSessionOptions& options) {
  std::vector<Named<QueueEngine>> engines;
  for (const QueueEngine engine :
       {QueueEngine::automatic, QueueEngine::hca, QueueEngine::hca_cpu_doorbell, QueueEngine::software_hca}) {
    engines.push_back({engine, name_of(engine)});
  }
  options.queue_count = 0;
  command.add_option("--queues", options.queue_count, whole_number(0, kMaxQueues),
                     "Work requests in so many queues to the partner, executed by --engine, in place of loads and stores");
  command.add_option("--proxies", options.proxy_thread_count, whole_number(1, kMaxProxies),
                     "Threads of the CPU by which a software HCA executes the queues' work requests");
  command.add_choice("--engine", options.engine, engines,
                     "What executes the queues: an mlx5 adapter that kernels or the CPU ring (never run on hardware), or the CPU");
  command.add_option("--hca", options.hca_port, Value{"PORT"},
                     "Port of the adapter of --engine hca, as in \"mlx5_0/1\" (default: the nearest that is usable)");
}

void add_rounds(const Command& command, Options& options) {
  const bool is_latency = options.measure == Measure::latency;
  add_sizes(command, options.sizes, options.measure == Measure::rate ? "8:8" : is_latency ? "4:64M, of replies 4:64K" : "4:64M");
  ranks::add_counts(command, options, is_latency ? "10000, above 8K 1000, above 1M 100" : "100, above 8K 20",
                    is_latency ? "1000, above 8K 100, above 1M 10" : "10, above 8K 2");
  if (is_latency) return;
  command.add_option("-W,--window-size", options.window, whole_number(1, kMaxWindow),
                     "Messages of a unit before it waits for the answer");
}

void add(const Command& program, Invocation& invocation, Measure measure, const char* description) {
  const bool is_latency = measure == Measure::latency;
  const std::vector<Named<Op>> ops = ops_of(measure);
  const auto [command, options] =
      ranks::add_pair_command<Session, Options>(program, invocation, command_of(measure), description, settled);
  options.measure = measure;
  options.op = ops.front().value;
  command->add_choice("--op", options.op, ops, "What the kernel does");
  const char* const scope = is_latency                      ? "block where messages have a size, else thread"
                            : measure == Measure::bandwidth ? "block"
                                                            : "thread";
  const char* const blocks = measure == Measure::bandwidth ? "64; 8 with --scope blocks" : "1; 8 with --scope blocks";
  add_grid_options(command, options.grid, scope, blocks, true);
  add_queues(command, options.queues);
  add_rounds(command, options);
  command->add_flag("-c,--validation", options.is_checked,
                    "Check all data in the kernels, different ones in every round; times then contain it. Wrong data are status 1");
  command->add_option("--plant-fault", options.fault_bytes, byte_count(0))->group("");  // proves that the check can fail
  add_pair_options(command, options);
}

}  // namespace
}  // namespace device_ranks

void add_device_measures(const Command& program, Invocation& invocation) {
  using device_ranks::Measure;
  const auto add = [&](Measure measure, const char* description) { device_ranks::add(program, invocation, measure, description); };
  add(Measure::latency, "Latency between kernels of two ranks, by size");
  add(Measure::bandwidth, "Bandwidth of a kernel's own writes to or reads from the other rank, by size");
  add(Measure::rate, "Small messages per second that kernels send to the other rank");
}

}  // namespace gigabar::tool
