// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "ranks/words.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::device_ranks {
namespace {

constexpr std::array kLatencyOps = {Op::notify, Op::notify_ordered, Op::payload,      Op::write_notify,
                                    Op::read,   Op::fetch_add,      Op::compare_swap, Op::barrier};
constexpr std::array kBandwidthOps = {Op::write, Op::read};
constexpr std::array kRateOps = {Op::notify, Op::write, Op::write_notify};

constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{64} << 20;  // of a window, all slots together
constexpr std::uint64_t kPartUnit = 16;                              // parts begin where one load of a GPU is whole
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kShortRoundsPerLook = 64;  // a look at the clock takes about as long as a short round
constexpr std::uint64_t kGuardBytes = 64;          // between slots

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

ranks::SizeRange default_sizes(Measure measure) noexcept {
  if (measure == Measure::rate) return {8, 8};
  return {kWordBytes, std::uint64_t{64} << 20};
}

void settle_message_sizes(Plan& plan) {
  const Options& options = plan.options;
  if (!has_sizes(options.op)) {
    if (!options.sizes.empty()) {
      refuse_usage(fmt::format("-m {}: --op {} has no size to choose; leave -m out", options.sizes, name_of(options.op)));
    }
    plan.sizes = {0};
    return;
  }
  plan.sizes = settle_sizes(options.sizes, default_sizes(options.measure));
}

void settle_grid(const Options& options) {
  const bool is_one = options.measure == Measure::latency;
  if (is_one && options.grid.thread_count && options.grid.scope != ScopeKind::block) {
    refuse_usage(fmt::format("--threads {}: a latency is that of one scope; choose --scope block, or leave --threads out",
                             *options.grid.thread_count));
  }
}

}  // namespace

std::string_view command_of(Measure measure) noexcept {
  switch (measure) {
    case Measure::latency: return "device-latency";
    case Measure::bandwidth: return "device-bw";
    case Measure::rate: return "device-rate";
  }
  return "unknown";
}

std::string_view name_of(Op op) noexcept {
  switch (op) {
    case Op::notify: return "notify";
    case Op::notify_ordered: return "notify-ordered";
    case Op::payload: return "payload";
    case Op::write_notify: return "write-notify";
    case Op::write: return "write";
    case Op::read: return "read";
    case Op::fetch_add: return "fetch-add";
    case Op::compare_swap: return "compare-swap";
    case Op::barrier: return "barrier";
  }
  return "unknown";
}

std::string_view name_of(ScopeKind scope) noexcept {
  switch (scope) {
    case ScopeKind::thread: return "thread";
    case ScopeKind::warp: return "warp";
    case ScopeKind::block: return "block";
  }
  return "unknown";
}

std::span<const Op> ops_of(Measure measure) noexcept {
  switch (measure) {
    case Measure::latency: return kLatencyOps;
    case Measure::bandwidth: return kBandwidthOps;
    case Measure::rate: return kRateOps;
  }
  return {};
}

bool has_sizes(Op op) noexcept { return op == Op::write || op == Op::read || op == Op::write_notify; }

std::vector<std::uint64_t> settle_sizes(const std::string& typed, const ranks::SizeRange& usual) {
  const auto range = typed.empty() ? std::optional(usual) : ranks::parse_size_range(typed, usual);
  if (!range || range->most_bytes > kMaxBytes) {
    refuse_usage(
        fmt::format("-m {}: this is no range of sizes; write MAX or MIN:MAX, MIN not above MAX, at most {} bytes, as in 4:64M",
                    typed, kMaxBytes));
  }
  if (range->least_bytes == 0 || range->least_bytes % kWordBytes != 0) {
    refuse_usage(fmt::format("-m {}: sizes are doubled from MIN, which is a multiple of {} bytes and not 0", typed, kWordBytes));
  }
  return ranks::sizes_of(*range);
}

Plan make_plan(const Options& options) {
  Plan plan;
  plan.options = options;
  settle_message_sizes(plan);
  settle_grid(options);
  plan.fabric = ranks::fabric_options(options.fabric);
  return plan;
}

Grid make_grid(const GridOptions& options, ScopeKind usual_scope, std::uint32_t usual_block_count, bool is_stand_in) {
  Grid grid;
  grid.scope = options.scope.value_or(usual_scope);
  grid.block_count = options.block_count.value_or(is_stand_in ? std::min(usual_block_count, 2U) : usual_block_count);
  const std::uint32_t warp = is_stand_in ? kMaxCpuLanes : kWarpThreads;
  const std::uint32_t usual_threads = grid.scope == ScopeKind::thread ? 1
                                      : grid.scope == ScopeKind::warp ? kWarpThreads
                                                                      : kMaxBlockThreads;
  grid.threads_per_block = options.thread_count.value_or(usual_threads);
  if (grid.scope == ScopeKind::warp && grid.threads_per_block % kWarpThreads != 0) {
    refuse_usage(fmt::format("--threads {}: with --scope warp it is a multiple of {}", grid.threads_per_block, kWarpThreads));
  }
  if (is_stand_in && grid.scope == ScopeKind::block) grid.threads_per_block = std::min(grid.threads_per_block, kMaxCpuLanes);
  if (is_stand_in && grid.scope == ScopeKind::warp) grid.threads_per_block = grid.threads_per_block / kWarpThreads * warp;
  grid.threads_per_unit = grid.scope == ScopeKind::thread ? 1 : grid.scope == ScopeKind::warp ? warp : grid.threads_per_block;
  const std::uint64_t thread_count = std::uint64_t{grid.block_count} * grid.threads_per_block;
  if (is_stand_in && thread_count > kMaxCpuThreads) {
    refuse_usage(fmt::format("--blocks {} of {}: without a GPU CPU threads play them, at most {}; use fewer", grid.block_count,
                             counted(grid.threads_per_block, "thread"), kMaxCpuThreads));
  }
  if (std::uint64_t{grid.block_count} * grid.units_per_block() > kMaxUnits) {
    refuse_usage(fmt::format("--blocks {} of {} {}s: {} of them at most; use fewer --blocks or --threads", grid.block_count,
                             grid.units_per_block(), name_of(grid.scope), kMaxUnits));
  }
  return grid;
}

std::uint64_t part_of(std::uint64_t bytes, const Grid& grid) noexcept {
  return round_up((bytes + grid.unit_count() - 1) / grid.unit_count(), kPartUnit);
}

std::string grid_text(const Grid& grid) {
  return fmt::format("{} of {}, scope {}", counted(grid.block_count, "block"), counted(grid.threads_per_block, "thread"),
                     name_of(grid.scope));
}

void require_room_for_samples(std::uint32_t round_count, const Grid& grid) {
  const std::uint64_t count = std::uint64_t{round_count} * grid.unit_count();
  if (count <= kMaxSamples) return;
  refuse_usage(fmt::format("-i {}: with {} that is {}, and {} at most are kept; take fewer rounds", round_count,
                           counted(grid.unit_count(), name_of(grid.scope)), counted(count, "sample"), kMaxSamples));
}

Grid grid_of(const Options& options, bool is_stand_in) {
  const bool is_small = options.measure == Measure::rate || !has_sizes(options.op);
  const std::uint32_t blocks = options.measure == Measure::bandwidth ? 64 : 1;
  return make_grid(options.grid, is_small ? ScopeKind::thread : ScopeKind::block, blocks, is_stand_in);
}

ranks::Counts counts_for(const Options& options, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kVeryLargeBytes = std::uint64_t{1} << 20;
  const bool is_large = bytes > ranks::kLargeBytes;
  ranks::Counts counts;
  if (options.measure != Measure::latency) {
    counts = is_large ? ranks::Counts{20, 2} : ranks::Counts{100, 10};
  } else {
    counts = bytes > kVeryLargeBytes ? ranks::Counts{100, 10} : is_large ? ranks::Counts{1000, 100} : ranks::Counts{10000, 1000};
  }
  counts.iterations = options.iteration_count.value_or(counts.iterations);
  counts.warm_up = options.warm_up_count.value_or(counts.warm_up);
  return counts;
}

device::Sharing sharing_of(const Options& options, const Grid& grid) noexcept {
  // A flush goes to the queues of all.
  const bool flushes = (options.measure == Measure::rate && options.op == Op::write) || options.op == Op::barrier;
  if (flushes) return device::Sharing::device;
  if (grid.unit_count() <= options.queues.count) return device::Sharing::exclusive;
  return grid.block_count == 1 ? device::Sharing::block : device::Sharing::device;
}

RoundPlan layout_of(const Options& options, const Grid& grid, std::uint64_t bytes) noexcept {
  const std::uint64_t units = grid.unit_count();
  RoundPlan plan;
  plan.measure = options.measure;
  plan.op = options.op;
  plan.unit_count = grid.unit_count();
  plan.window = options.measure == Measure::latency ? 1 : options.window;
  plan.queue_count = options.queues.count;
  plan.sharing = sharing_of(options, grid);
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

std::uint64_t segment_bytes(const RoundPlan& layout) noexcept {
  return layout.words_offset_bytes + round_up(layout.unit_count * sizeof(std::uint64_t), kPage);
}

std::uint64_t digest_of(const Plan& plan, const Grid& grid) {
  const Options& options = plan.options;
  return ranks::digest_of_text(
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", command_of(options.measure), name_of(options.op), plan.sizes.front(),
                  plan.sizes.back(), name_of(grid.scope), grid.block_count, grid.threads_per_block, grid.threads_per_unit,
                  options.iteration_count.value_or(0), options.warm_up_count.value_or(~0U), options.window, options.is_checked,
                  options.fault_bytes.value_or(~std::uint64_t{0}), options.queues.count));
}

}  // namespace gigabar::tool::device_ranks
