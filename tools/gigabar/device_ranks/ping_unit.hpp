// The latency of what a channel sends, by the fewest instructions: a loop that lies in registers as a whole, where RoundUnit, which
// can do everything, lies in local memory that each wait's acquire empties from the cache (0.4 us of each message on an H200).
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit_end.hpp"
#include "device_ranks/unit_words.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

// Whether a PingUnit can do a plan, and does what a RoundUnit would.
inline bool is_ping(const RoundPlan& plan) {
  const bool has_op = plan.op == Op::notify || plan.op == Op::notify_ordered || plan.op == Op::write_notify;
  const bool has_channel = plan.queue_count == 0 || plan.sharing == device::Sharing::exclusive;
  const bool looks_at_data = plan.is_checked && plan.message_bytes != 0;
  return plan.measure == Measure::latency && has_op && has_channel && !looks_at_data && !plan.only_fills;
}

template <class Scope>
class PingUnit {
 public:
  // `end` is zeroed.
  GIGABAR_DEVICE PingUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end) {}

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const std::uint64_t begin = index_ * plan_.part_stride_bytes;
    const bool has_part = plan_.message_bytes == 0 || begin < plan_.message_bytes;
    const std::uint32_t rounds = has_part ? plan_.warm_up_count + plan_.iteration_count : 0;
    const std::uint64_t left = has_part ? plan_.message_bytes - begin : 0;
    const std::uint64_t bytes = left < plan_.part_bytes ? left : plan_.part_bytes;
    const NotificationId id = 2 * index_ + 1;  // as of RoundUnit: the end of a round
    const device::Timeout timeout{plan_.timeout_ns};
    const device::Order order = plan_.op == Op::notify ? device::Order::none : device::Order::after_writes;

    device::Channel channel;
    const auto queue = plan_.queue_count == 0 ? QueueId{0} : static_cast<QueueId>(index_ % plan_.queue_count);
    Status status = device::Channel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment, queue, channel);
    std::uint32_t rounds_done = 0;
    // One place that sends and one that waits, which the compiler keeps in line: the passive side's first step sends nothing, and
    // its last one does nothing else.
    for (std::uint32_t step = 0; status == Status::ok && rounds_done < rounds; ++step) {
      if (step % plan_.rounds_per_look == 0 && is_over(clock)) {
        status = Status::timed_out;
        break;
      }
      scope_.sync();
      const std::uint64_t before = ticks();
      if (plan_.is_active || step != 0) {
        const std::uint32_t value = plan_.is_active ? step + 1 : step;
        status = plan_.op == Op::write_notify
                     ? channel.write_notify(scope_, begin, plan_.receive_offset_bytes + begin, bytes, id, value, timeout)
                     : channel.notify(scope_, id, value, order, 0, timeout);
        if (!plan_.is_active) rounds_done = step;
      }
      if (status != Status::ok || rounds_done == rounds) break;
      std::uint32_t found = 0;
      status = channel.notification_wait_until(scope_, id, step + 1, timeout, found);
      if (status != Status::ok) break;
      if (plan_.is_active) {
        if (scope_.rank() == 0 && step >= plan_.warm_up_count) samples[step - plan_.warm_up_count] = ticks() - before;
        rounds_done = step + 1;
      }
      if (plan_.plants_fault && step + 1 == rounds) found ^= 1;
      if (found != step + 1 && scope_.rank() == 0) report_wrong(end_, {step, 0, 0}, step + 1, found);
    }
    channel.close(scope_);
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope_, plan_.fabric, kDataSegment, id, value);
    if (scope_.rank() != 0) return;
    end_->status = status;
    end_->rounds_done = rounds_done;
    if (plan_.is_active) clock.stop(end_->elapsed_ns, end_->elapsed_ticks);
  }

 private:
  GIGABAR_DEVICE bool is_over(const RunClock& clock) const {
    return scope_.broadcast(static_cast<std::uint32_t>(clock.elapsed_ns() > plan_.timeout_ns)) != 0;
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
};

// The kernel: what each scope of a grid does.
struct PingsBody {
  RoundPlan plan;
  std::uint64_t* samples = nullptr;  // [unit_count * iteration_count]
  UnitEnd* ends = nullptr;           // [unit_count], zeroed

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit) const {
    PingUnit<Scope>(scope, plan, unit, ends + unit).run(samples + std::uint64_t{unit} * plan.iteration_count);
  }
};

}  // namespace gigabar::tool::device_ranks
