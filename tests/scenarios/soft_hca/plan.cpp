// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/counted.hpp"
#include "gigabar/device/queue.hpp"
#include "scenarios/soft_hca/slots.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"

namespace gigabar::tool::softhca {
namespace {

constexpr std::uint32_t kRounds = 1000, kWarmUpRounds = 100;
constexpr std::uint32_t kFaultRounds = 100, kFaultWarmUpRounds = 10;

void settle_shape(const Options& options, Sharing sharing) {
  if (!std::has_single_bit(options.slot_count)) {
    refuse_usage(fmt::format("--slots {}: a ring has a power of two of them; take {}", options.slot_count,
                             std::min(std::bit_ceil(options.slot_count), device::kMaxDepth)));
  }
  if (sharing == Sharing::exclusive && units_of_queue(options) > 1) {
    refuse_usage(fmt::format("--sharing exclusive: {} on {} share them; take --queues {}, --sharing device, or --scope block",
                             counted(options.thread_count, "thread"), counted(options.queue_count, "queue"), options.thread_count));
  }
}

std::vector<std::uint64_t> settle_sizes(const Options& options) {
  const SizeRange usual = options.faults.empty() ? SizeRange{8, 4096} : SizeRange{16, 16};
  const auto range = options.sizes.empty() ? std::optional(usual) : parse_size_range(options.sizes, usual);
  if (!range || range->most_bytes > kMaxMessageBytes) {
    refuse_usage(fmt::format("-m {}: this is no range of sizes; write MAX or MIN:MAX, MIN not above MAX, at most 64M, as in 8:4K",
                             options.sizes));
  }
  if (range->least_bytes == 0)
    refuse_usage(fmt::format("-m {}: 0 bytes move nothing that could be checked; start at 1", options.sizes));
  return sizes_of(*range);
}

// Sizes that the operation can have. An atomic has one.
std::vector<std::uint64_t> sizes_for(const Options& options, Op op, const std::vector<std::uint64_t>& sizes) {
  if (is_atomic(op)) {
    if (options.op && !options.sizes.empty()) {
      refuse_usage(fmt::format("-m {}: --op {} is of 8 bytes; leave -m out", options.sizes, name_of(op)));
    }
    return {sizeof(std::uint64_t)};
  }
  if (op != Op::inline_write) return sizes;
  std::vector<std::uint64_t> small;
  for (const std::uint64_t bytes : sizes) {
    if (bytes <= device::mlx5::kMaxInlineBytes) small.push_back(bytes);
  }
  if (small.empty() && options.op) {
    refuse_usage(fmt::format("-m {}: at most {} bytes travel inside a request; take -m {}, or --op write", options.sizes,
                             device::mlx5::kMaxInlineBytes, device::mlx5::kMaxInlineBytes));
  }
  return small;
}

// What a queue takes at once from all that post to it, in operations of one of their threads.
std::uint32_t capacity_of_lane(const Options& options, Op op) {
  return options.slot_count / requests_of_post(options, op) / units_of_queue(options);
}

void require_room(const Options& options, Op op) {
  const std::uint32_t post = requests_of_post(options, op);
  if (post <= options.slot_count) return;
  refuse_usage(fmt::format("--slots {}: a block of {} posts {} at once; take more slots or fewer --threads", options.slot_count,
                           counted(options.thread_count, "thread"), counted(post, "work request")));
}

// Faults that need so much of the ring that it must not be full, or that must be.
void settle_window(const Options& options, Case& one) {
  const std::uint32_t capacity = capacity_of_lane(options, one.op);
  one.window = options.window;
  if (one.fault.kind == FaultKind::full_ring) one.window = options.slot_count / requests_of_post(options, one.op) + 1;
  if (one.fault.kind == FaultKind::stalled_consumer) one.window = capacity;
  const bool must_fit = one.fault.kind == FaultKind::stalled_hca || one.fault.kind == FaultKind::stalled_consumer;
  if (must_fit && (one.window > capacity || capacity == 0)) {
    refuse_usage(fmt::format("--fault {}: {} of each of {} must fit in {}; take more --slots or fewer --threads",
                             name_of(one.fault), counted(std::max(one.window, 1U), "post"), counted(options.thread_count, "thread"),
                             counted(options.slot_count, "slot")));
  }
}

void settle_counts(const Options& options, Case& one) {
  const bool is_faulty = one.fault.kind != FaultKind::none;
  one.iterations = options.iteration_count.value_or(is_faulty ? kFaultRounds : kRounds);
  one.warm_up = options.warm_up_count.value_or(is_faulty ? kFaultWarmUpRounds : kWarmUpRounds);
  const std::uint64_t requests_of_round = std::uint64_t{one.window} * requests_of_post(options, one.op);
  switch (one.fault.kind) {
    case FaultKind::full_ring:
    case FaultKind::stalled_hca:
    case FaultKind::stalled_consumer: one.iterations = 1; break;
    case FaultKind::wrap:
      // From first to last in the timed rounds.
      one.warm_up = 0;
      one.iterations = std::max(one.iterations, static_cast<std::uint32_t>(one.fault.value / requests_of_round + 1));
      break;
    case FaultKind::lost_record:
    case FaultKind::lost_doorbell: one.slots_of_rounds = static_cast<std::uint32_t>(one.fault.value) + 2; break;
    case FaultKind::error:
      one.slots_of_rounds = 2;  // what failed, and the post behind it that is refused
      if (one.fault.value > one.iterations * requests_of_round) {
        refuse_usage(fmt::format("--fault {}: a queue has {} only; take more iterations (-i)", name_of(one.fault),
                                 counted(one.iterations * requests_of_round, "request")));
      }
      break;
    default: break;
  }
}

void settle_needs(const Options& options, const Case& one) {
  if (one.fault.kind == FaultKind::reorder && queues_of_unit(options, 0).size() < 2) {
    refuse_usage(fmt::format("--fault {}: a thread that posts to one queue sees no overtaking; take at least --queues {}",
                             name_of(one.fault), 2 * unit_count(options)));
  }
  const std::uint64_t places =
      std::uint64_t{one.window} * one.slots_of_rounds * lanes_of_unit(options) * std::max(options.queue_count, unit_count(options));
  const std::uint64_t bytes = Layout{one.bytes, places}.block_bytes();
  if (bytes <= kMaxMemoryBytes) return;
  refuse_usage(
      fmt::format("-m {}: {} of that size may be under way{}{}, which takes {}, and {} are the limit; take "
                  "smaller messages, a smaller window (-W) or fewer --slots",
                  one.bytes, counted(places, "operation"), one.fault.kind == FaultKind::none ? "" : " with --fault ",
                  one.fault.kind == FaultKind::none ? "" : name_of(one.fault), counted(bytes, "byte"), kMaxMemoryBytes));
}

bool fits(const Fault& fault, Op op) { return fault.kind != FaultKind::late_read || op == Op::read; }

void add_cases(Plan& plan, Op op, const std::vector<std::uint64_t>& sizes, const Fault& fault) {
  if (!fits(fault, op)) return;
  require_room(plan.options, op);
  for (const std::uint64_t bytes : sizes) {
    Case one;
    one.op = op;
    one.bytes = bytes;
    one.fault = fault;
    settle_window(plan.options, one);
    settle_counts(plan.options, one);
    settle_needs(plan.options, one);
    plan.cases.push_back(one);
  }
}

}  // namespace

std::uint32_t unit_count(const Options& options) noexcept { return options.scope == ScopeKind::block ? 1 : options.thread_count; }

std::uint32_t lanes_of_unit(const Options& options) noexcept {
  return options.scope == ScopeKind::block ? options.thread_count : 1;
}

std::vector<std::uint32_t> queues_of_unit(const Options& options, std::uint32_t unit) {
  const std::uint32_t units = unit_count(options);
  if (units >= options.queue_count) return {unit % options.queue_count};
  std::vector<std::uint32_t> queues;
  for (std::uint32_t queue = unit; queue < options.queue_count; queue += units) queues.push_back(queue);
  return queues;
}

std::uint32_t units_of_queue(const Options& options) noexcept {
  return (unit_count(options) + options.queue_count - 1) / options.queue_count;
}

std::uint32_t requests_of(const Options& options, Op op) noexcept { return op == Op::read && options.confirms_reads ? 2 : 1; }

std::uint32_t requests_of_post(const Options& options, Op op) noexcept { return requests_of(options, op) * lanes_of_unit(options); }

Plan make_plan(const Options& options) {
  Plan plan;
  plan.options = options;
  plan.sharing = options.sharing.value_or(units_of_queue(options) > 1 ? Sharing::device : Sharing::exclusive);
  settle_shape(options, plan.sharing);
  std::vector<Fault> faults = parse_faults(options.faults);
  if (faults.empty()) faults.emplace_back();
  const std::vector<std::uint64_t> sizes = settle_sizes(options);
  for (const auto& [op, name] : kOps) {
    if (options.op && op != *options.op) continue;
    const std::vector<std::uint64_t> own_sizes = sizes_for(options, op, sizes);
    for (const Fault& fault : faults) add_cases(plan, op, own_sizes, fault);
  }
  if (plan.cases.empty()) {
    refuse_usage(fmt::format("--fault {}: it is of reads, and --op {} reads nothing; take --op read", name_of(faults.front()),
                             options.op ? name_of(*options.op) : ""));
  }
  return plan;
}

}  // namespace gigabar::tool::softhca
