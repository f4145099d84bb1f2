// SPDX-License-Identifier: Apache-2.0
// Windows of what a channel sends, by few instructions: a loop that lies in registers as a whole, where RoundUnit, which can do
// everything, lies in local memory that each wait's acquire empties from the cache (0.4 us of each message on an H200).
#pragma once

#include "device_ranks/plans.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

// Whether a LeanUnit, or of latencies a PingUnit, can do a plan, and does what a RoundUnit would.
inline bool is_lean(const RoundPlan& plan) {
  const bool only_sends = plan.op <= Op::write || plan.op == Op::write_count;
  const bool looks_at_data = plan.is_checked && plan.message_bytes != 0;
  const bool ends_with_flush = plan.measure == Measure::rate && plan.op == Op::write;
  return only_sends && has_channel(plan) && !looks_at_data && !ends_with_flush && !plan.only_fills;
}

template <class Scope, class Channel>
struct LeanUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const Part part = part_of(plan, index);
    const std::uint32_t rounds = part.is_there ? plan.round_count() : 0;
    const NotificationId messages = messages_of(index), round_end = round_end_of(index);
    const device::Timeout timeout{plan.timeout_ns};
    // A window is answered by a word.
    const Op op = plan.is_active ? plan.op : Op::notify;
    const std::uint32_t window = plan.is_active ? plan.window : 1;

    Channel channel;
    Status status = Channel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, queue_of(plan, index), channel);
    std::uint32_t rounds_done = 0;
    // One place that sends and one that waits, which the compiler keeps in line: the passive side's first step sends nothing, and
    // its last one does nothing else.
    for (std::uint32_t step = 0; status == Status::ok && rounds_done < rounds; ++step) {
      if (step % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      scope.sync();
      if (step == plan.warm_up_count && scope.rank() == 0) end->timed_from_ns = device::now_ns();
      const std::uint32_t round = plan.is_active ? step + 1 : step;
      for (std::uint32_t message = 1; round != 0 && message <= window && status == Status::ok; ++message) {
        const bool is_last = message == window;
        const NotificationId id = is_last ? round_end : messages;
        const std::uint32_t value = is_last ? round : message;
        if (op == Op::write_notify) {
          status = channel.write_notify(scope, part.begin, plan.receive_offset_bytes + part.begin, part.bytes, id, value, timeout);
          continue;
        }
        if (op == Op::write) status = channel.write(scope, part.begin, plan.receive_offset_bytes + part.begin, part.bytes, timeout);
        if (op == Op::write && !is_last) continue;
        // The end of a window is seen behind all of it.
        const device::Order order = is_last && plan.is_active ? device::Order::after_writes : device::Order::none;
        if (status == Status::ok) status = channel.notify(scope, id, value, order, 0, timeout);
      }
      if (!plan.is_active) rounds_done = step;
      if (status != Status::ok || rounds_done == rounds) break;
      std::uint32_t found = 0;
      status = channel.notification_wait_until(scope, round_end, step + 1, timeout, found);
      if (status != Status::ok) break;
      if (plan.is_active) {
        if (scope.rank() == 0 && step >= plan.warm_up_count) samples[step - plan.warm_up_count] = device::now_ns();
        rounds_done = step + 1;
      }
      if (plan.plants_fault && step + 1 == rounds) found ^= 1;
      expect({step, 0, 0}, step + 1, found);
      if (!plan.is_active && plan.op != Op::write && plan.window > 1) {
        status = device::notification_reset(scope, plan.fabric, kDataSegment, messages, found);
        expect({step, plan.window - 2, 0}, plan.window - 1, found);
      }
    }
    channel.close(scope);
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope, plan.fabric, kDataSegment, round_end, value);
    clock.report(scope, plan.is_active, status, rounds_done, end);
  }

 private:
  GIGABAR_DEVICE void expect(const WordPlace& place, std::uint32_t right, std::uint32_t found) const {
    if (found != right && scope.rank() == 0) report_wrong(end, place, right, found);
  }
};

template <class Scope>
using LeanDirectUnit = LeanUnit<Scope, device::DirectChannel>;
template <>
inline constexpr bool kTakesBlocks<LeanDirectUnit> = true;
template <class Scope>
using LeanQueueUnit = LeanUnit<Scope, device::QueueChannel>;

}  // namespace gigabar::tool::device_ranks
