// SPDX-License-Identifier: Apache-2.0
// Windows of what a channel sends, by few instructions: a loop that lies in registers as a whole, where RoundUnit, which can do
// everything, lies in local memory that each wait's acquire empties from the cache (0.4 us of each message on an H200).
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit.hpp"
#include "device_ranks/unit_words.hpp"
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
class LeanUnit {
 public:
  // `end` is zeroed.
  GIGABAR_DEVICE LeanUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end) {}

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const Part part = part_of(plan_, index_);
    const std::uint32_t rounds = part.is_there ? plan_.round_count() : 0;
    const NotificationId messages = messages_of(index_), round_end = round_end_of(index_);
    const device::Timeout timeout{plan_.timeout_ns};
    // A window is answered by a word.
    const Op op = plan_.is_active ? plan_.op : Op::notify;
    const std::uint32_t window = plan_.is_active ? plan_.window : 1;

    Channel channel;
    Status status =
        Channel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment, queue_of(plan_, index_), channel);
    std::uint32_t rounds_done = 0;
    // One place that sends and one that waits, which the compiler keeps in line: the passive side's first step sends nothing, and
    // its last one does nothing else.
    for (std::uint32_t step = 0; status == Status::ok && rounds_done < rounds; ++step) {
      if (step % plan_.rounds_per_look == 0 && is_over(scope_, clock, plan_.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      scope_.sync();
      if (step == plan_.warm_up_count && scope_.rank() == 0) end_->timed_from_ns = device::now_ns();
      const std::uint32_t round = plan_.is_active ? step + 1 : step;
      for (std::uint32_t message = 1; round != 0 && message <= window && status == Status::ok; ++message) {
        const bool is_last = message == window;
        const NotificationId id = is_last ? round_end : messages;
        const std::uint32_t value = is_last ? round : message;
        if (op == Op::write_notify) {
          status =
              channel.write_notify(scope_, part.begin, plan_.receive_offset_bytes + part.begin, part.bytes, id, value, timeout);
          continue;
        }
        if (op == Op::write)
          status = channel.write(scope_, part.begin, plan_.receive_offset_bytes + part.begin, part.bytes, timeout);
        if (op == Op::write && !is_last) continue;
        // The end of a window is seen behind all of it.
        const device::Order order = is_last && plan_.is_active ? device::Order::after_writes : device::Order::none;
        if (status == Status::ok) status = channel.notify(scope_, id, value, order, 0, timeout);
      }
      if (!plan_.is_active) rounds_done = step;
      if (status != Status::ok || rounds_done == rounds) break;
      std::uint32_t found = 0;
      status = channel.notification_wait_until(scope_, round_end, step + 1, timeout, found);
      if (status != Status::ok) break;
      if (plan_.is_active) {
        if (scope_.rank() == 0 && step >= plan_.warm_up_count) samples[step - plan_.warm_up_count] = device::now_ns();
        rounds_done = step + 1;
      }
      if (plan_.plants_fault && step + 1 == rounds) found ^= 1;
      expect({step, 0, 0}, step + 1, found);
      if (!plan_.is_active && plan_.op != Op::write && plan_.window > 1) {
        status = device::notification_reset(scope_, plan_.fabric, kDataSegment, messages, found);
        expect({step, plan_.window - 2, 0}, plan_.window - 1, found);
      }
    }
    channel.close(scope_);
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope_, plan_.fabric, kDataSegment, round_end, value);
    clock.report(scope_, plan_.is_active, status, rounds_done, end_);
  }

 private:
  GIGABAR_DEVICE void expect(const WordPlace& place, std::uint32_t right, std::uint32_t found) const {
    if (found != right && scope_.rank() == 0) report_wrong(end_, place, right, found);
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
};

template <class Scope>
using LeanDirectUnit = LeanUnit<Scope, device::DirectChannel>;
template <>
inline constexpr bool kTakesBlocks<LeanDirectUnit> = true;
template <class Scope>
using LeanQueueUnit = LeanUnit<Scope, device::QueueChannel>;

}  // namespace gigabar::tool::device_ranks
