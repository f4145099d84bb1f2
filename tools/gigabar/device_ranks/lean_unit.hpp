// What a channel sends, by the fewest instructions: a loop that lies in registers as a whole, where RoundUnit, which can do
// everything, lies in local memory that each wait's acquire empties from the cache (0.4 us of each message on an H200).
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit_end.hpp"
#include "device_ranks/unit_words.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

// Whether a LeanUnit can do a plan, and does what a RoundUnit would.
inline bool is_lean(const RoundPlan& plan) {
  const bool only_sends = plan.op <= Op::write;
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
    const std::uint64_t begin = index_ * plan_.part_stride_bytes;
    const bool has_part = plan_.message_bytes == 0 || begin < plan_.message_bytes;
    const std::uint32_t rounds = has_part ? plan_.round_count() : 0;
    const std::uint64_t left = has_part ? plan_.message_bytes - begin : 0;
    const std::uint64_t bytes = left < plan_.part_bytes ? left : plan_.part_bytes;
    // Notifications as of RoundUnit: of messages, and of the end of a round.
    const NotificationId messages = 2 * index_, round_end = messages + 1;
    const device::Timeout timeout{plan_.timeout_ns};
    // A ping is answered by its like, a window by a word.
    const bool only_answers = !plan_.is_active && plan_.measure != Measure::latency;
    const Op op = only_answers ? Op::notify : plan_.op;
    const std::uint32_t window = only_answers ? 1 : plan_.window;

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
      const std::uint64_t before = ticks();
      const std::uint32_t round = plan_.is_active ? step + 1 : step;
      for (std::uint32_t message = 1; round != 0 && message <= window && status == Status::ok; ++message) {
        const bool is_last = message == window;
        const NotificationId id = is_last ? round_end : messages;
        const std::uint32_t value = is_last ? round : message;
        if (op == Op::write_notify) {
          status = channel.write_notify(scope_, begin, plan_.receive_offset_bytes + begin, bytes, id, value, timeout);
          continue;
        }
        if (op == Op::write) status = channel.write(scope_, begin, plan_.receive_offset_bytes + begin, bytes, timeout);
        if (op == Op::write && !is_last) continue;
        if (status == Status::ok) status = channel.notify(scope_, id, value, order(op, is_last), payload_of(value), timeout);
      }
      if (!plan_.is_active) rounds_done = step;
      if (status != Status::ok || rounds_done == rounds) break;
      std::uint32_t found = 0;
      std::uint64_t carried = 0;  // always asked for, so that no pointer to it is at run time
      status = channel.notification_wait_until(scope_, round_end, step + 1, timeout, found, &carried);
      if (status != Status::ok) break;
      if (plan_.is_active) {
        if (scope_.rank() == 0 && step >= plan_.warm_up_count)
          samples[step - plan_.warm_up_count] = plan_.takes_end_times() ? device::now_ns() : ticks() - before;
        rounds_done = step + 1;
      }
      if (plan_.plants_fault && step + 1 == rounds) found ^= 1;
      if (plan_.op == Op::payload && carried != payload_of(step + 1)) found = 0;
      expect({step, 0, 0}, step + 1, found);
      if (only_answers && plan_.op != Op::write && plan_.window > 1) {
        status = device::notification_reset(scope_, plan_.fabric, kDataSegment, messages, found);
        expect({step, plan_.window - 2, 0}, plan_.window - 1, found);
      }
    }
    channel.close(scope_);
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope_, plan_.fabric, kDataSegment, round_end, value);
    if (scope_.rank() != 0) return;
    end_->status = status;
    end_->rounds_done = rounds_done;
    if (plan_.is_active) clock.stop(end_->elapsed_ns, end_->elapsed_ticks);
  }

 private:
  GIGABAR_DEVICE std::uint64_t payload_of(std::uint32_t value) const { return value * kOdd64; }
  // The end of a window is seen behind all of it.
  GIGABAR_DEVICE device::Order order(Op op, bool is_last) const {
    const bool is_behind_writes = plan_.measure == Measure::latency ? op == Op::notify_ordered : is_last && plan_.is_active;
    return is_behind_writes ? device::Order::after_writes : device::Order::none;
  }
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
template <class Scope>
using LeanQueueUnit = LeanUnit<Scope, device::QueueChannel>;

}  // namespace gigabar::tool::device_ranks
