// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel and its partner's, round by round: the same code on a GPU and on threads of the CPU. All that no other unit
// does (run_body(), below): whatever checks data, shares a queue, or ends with a flush; reads in windows; barriers.
//
// Data go one way and a notification follows; who has seen it checks them and answers, so that no slot is written before it was
// checked. Notification 2u is raised by unit u's messages, 2u + 1 ends its round. With checked data the times contain the check of
// the partner.
#pragma once

#include "device_ranks/lean_units.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

template <class Scope>
class RoundUnit {
 public:
  static constexpr bool kTakesBlocks = true;

  // `end` is zeroed.
  GIGABAR_DEVICE RoundUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), index_(index), end_(end) {}

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) {
    if (plan_.op == Op::read && !plan_.is_active) {  // no rounds: puts in place what the partner reads
      fill(0, 0);
      return;
    }
    const RunClock clock;
    if (uses_channel())
      words_.note(device::Channel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment, queue(), channel_));
    const std::uint32_t rounds = part_.is_there ? plan_.round_count() : 0;
    for (round_ = 0; round_ < rounds && words_.is_ok(); ++round_) {
      if (round_ % plan_.rounds_per_look == 0 && words_.is_over(clock)) break;
      if (round_ == plan_.warm_up_count && scope_.rank() == 0) end_->timed_from_ns = device::now_ns();
      const std::uint64_t ticks = plan_.is_active ? active_round() : passive_round();
      if (scope_.rank() == 0 && plan_.is_active && round_ >= plan_.warm_up_count)
        samples[round_ - plan_.warm_up_count] = plan_.takes_end_times() ? device::now_ns() : ticks;
    }
    if (uses_channel()) channel_.close(scope_);
    std::uint32_t value = 0;
    if (words_.is_ok()) words_.note(device::notification_reset(scope_, plan_.fabric, kDataSegment, round_end(), value));
    clock.report(scope_, plan_.is_active, words_.status(), round_, end_);
  }

 private:
  GIGABAR_DEVICE QueueId queue() const { return queue_of(plan_, index_); }
  GIGABAR_DEVICE device::Post post() const { return {queue(), words_.timeout(), plan_.sharing}; }
  GIGABAR_DEVICE NotificationId round_end() const { return round_end_of(index_); }
  GIGABAR_DEVICE std::uint32_t round_value() const { return round_ + 1; }
  GIGABAR_DEVICE bool has_data() const { return part_.bytes != 0; }

  GIGABAR_DEVICE std::uint64_t send_offset(std::uint32_t message) const {
    return message % plan_.slot_count * plan_.slot_stride_bytes + part_.begin;
  }
  GIGABAR_DEVICE std::uint64_t receive_offset(std::uint32_t message) const {
    return plan_.receive_offset_bytes + send_offset(message);
  }

  template <class Body>
  GIGABAR_DEVICE std::uint64_t timed(const Body& body) {
    scope_.sync();
    const std::uint64_t before = ticks();
    body();
    return ticks() - before;
  }

  // --- Rounds --------------------------------------------------------------------------------------------------------------------

  GIGABAR_DEVICE std::uint64_t active_round() {
    if (plan_.op == Op::read) return read_round();
    if (plan_.op == Op::barrier) return timed([this] { meet(); });
    fill_data();
    return plan_.measure == Measure::latency ? ping_round() : window_round();
  }

  GIGABAR_DEVICE std::uint64_t passive_round() {
    if (plan_.op == Op::barrier) {
      meet();
    } else if (plan_.measure == Measure::latency) {
      await_round();
      check_data();
      fill_data();
      if (words_.is_ok()) send_ping();
    } else {
      take_window();
      if (words_.is_ok()) words_.note(notify_partner(round_end(), round_value(), device::Order::none));
    }
    return 0;
  }

  GIGABAR_DEVICE void meet() { words_.note(device::barrier(scope_, plan_.fabric, words_.timeout())); }

  GIGABAR_DEVICE std::uint64_t ping_round() {
    const std::uint64_t ticks = timed([&] {
      send_ping();
      await_round();
    });
    check_data();
    return ticks;
  }

  // A latency of notifications is a PingUnit's.
  GIGABAR_DEVICE void send_ping() {
    words_.note(plan_.op == Op::write_count ? device::write_count(scope_, plan_.fabric, {kDataSegment, send_offset(0)},
                                                                  {plan_.partner, kDataSegment, receive_offset(0)}, part_.bytes, 0)
                                            : write_notify_message(0, round_end(), round_value()));
  }

  // Writes end at the partner's answer, except those of a rate, which end with their flush.
  GIGABAR_DEVICE std::uint64_t window_round() {
    const std::uint64_t ticks = timed([&] {
      send_window();
      if (plan_.ends_with_flush()) {
        words_.note(device::flush(scope_, plan_.fabric, plan_.partner, words_.timeout()));
      } else {
        await_round();
      }
    });
    if (plan_.ends_with_flush() && plan_.is_checked) {
      words_.note(notify_partner(round_end(), round_value(), device::Order::after_writes));
      await_round();
    }
    return ticks;
  }

  // The last one stands for itself: what each of a window decides costs a tenth of its rate.
  GIGABAR_DEVICE void send_window() {
    const std::uint32_t last = plan_.window - 1;
    for (std::uint32_t message = 0; message < last && words_.is_ok(); ++message) send_message(message);
    if (!words_.is_ok()) return;
    if (plan_.op == Op::write_notify) {
      words_.note(write_notify_message(last, round_end(), round_value()));
    } else {
      if (plan_.op == Op::write) words_.note(write_message(last));
      // The end of a window is seen behind all of it.
      if (!plan_.ends_with_flush()) words_.note(notify_partner(round_end(), round_value(), device::Order::after_writes));
    }
  }

  GIGABAR_DEVICE void send_message(std::uint32_t message) {
    switch (plan_.op) {
      case Op::write: words_.note(write_message(message)); break;
      case Op::write_notify: words_.note(write_notify_message(message, messages_of(index_), message + 1)); break;
      default: words_.note(notify_partner(messages_of(index_), message + 1, device::Order::none)); break;
    }
  }

  GIGABAR_DEVICE void take_window() {
    await_round();
    if (!words_.is_ok()) return;
    if (plan_.op != Op::write && plan_.window > 1) {
      std::uint32_t value = 0;
      words_.note(device::notification_reset(scope_, plan_.fabric, kDataSegment, messages_of(index_), value));
      words_.expect({round_, plan_.window - 2, 0}, plan_.window - 1, value);
    }
    check_data();
  }

  GIGABAR_DEVICE std::uint64_t read_round() {
    if (plan_.is_checked) poison();
    const std::uint64_t ticks = timed([&] {
      for (std::uint32_t message = 0; message < plan_.window && words_.is_ok(); ++message) {
        words_.note(device::read(scope_, plan_.fabric, {kDataSegment, receive_offset(message)},
                                 {plan_.partner, kDataSegment, send_offset(message)}, part_.bytes, post()));
      }
      words_.note(device::wait(scope_, plan_.fabric, queue(), words_.timeout()));
    });
    if (plan_.is_checked) check(0, 0);
    return ticks;
  }

  GIGABAR_DEVICE bool uses_channel() const { return plan_.op <= Op::write && has_channel(plan_); }

  // --- Words of the API ----------------------------------------------------------------------------------------------------------

  GIGABAR_DEVICE Status notify_partner(NotificationId id, std::uint32_t value, device::Order order) {
    if (uses_channel()) return channel_.notify(scope_, id, value, order, 0, words_.timeout());
    return device::notify(scope_, plan_.fabric, plan_.partner, kDataSegment, id, value, order, 0, post());
  }

  GIGABAR_DEVICE Status write_message(std::uint32_t message) {
    if (uses_channel()) return channel_.write(scope_, send_offset(message), receive_offset(message), part_.bytes, words_.timeout());
    return device::write(scope_, plan_.fabric, {kDataSegment, send_offset(message)},
                         {plan_.partner, kDataSegment, receive_offset(message)}, part_.bytes, post());
  }

  GIGABAR_DEVICE Status write_notify_message(std::uint32_t message, NotificationId id, std::uint32_t value) {
    if (uses_channel()) {
      return channel_.write_notify(scope_, send_offset(message), receive_offset(message), part_.bytes, id, value, words_.timeout());
    }
    return device::write_notify(scope_, plan_.fabric, {kDataSegment, send_offset(message)},
                                {plan_.partner, kDataSegment, receive_offset(message)}, part_.bytes, id, value, post());
  }

  // The partner's end of this round.
  GIGABAR_DEVICE void await_round() {
    if (!words_.is_ok()) return;
    std::uint32_t value = 0;
    if (plan_.op == Op::write_count) {
      words_.note(device::counter_wait(scope_, plan_.fabric, plan_.partner, 0, plan_.counter_base + round_value(), words_.timeout(),
                                       value));
      return;
    }
    words_.note(uses_channel() ? channel_.notification_wait_until(scope_, round_end(), round_value(), words_.timeout(), value)
                               : device::notification_wait_until(scope_, plan_.fabric, kDataSegment, round_end(), round_value(),
                                                                 words_.timeout(), value, plan_.partner));
    words_.expect({round_, 0, 0}, round_value(), value ^ (has_data() ? 0 : fault()));
  }

  // --- Checks --------------------------------------------------------------------------------------------------------------------

  GIGABAR_DEVICE std::uint32_t fault() const { return plan_.plants_fault && round_value() == plan_.round_count() ? 1 : 0; }

  GIGABAR_DEVICE void fill_data() {
    if (plan_.is_checked && has_data()) fill(round_, plan_.fabric.rank);
  }
  GIGABAR_DEVICE void check_data() {
    if (plan_.is_checked && has_data()) check(round_, plan_.partner);
  }

  // All slots of this unit's part, as `sender` sends them in `round`.
  GIGABAR_DEVICE void fill(std::uint32_t round, Rank sender, std::uint64_t area_offset = 0, std::uint32_t flip = 0) {
    each_slot([&](std::uint32_t slot) {
      auto* const words = words_.template at<std::uint32_t>(area_offset + send_offset(slot), part_.bytes);
      fill_words(scope_, words, part_.bytes, sender, {round, slot, part_.begin}, flip);
    });
  }
  // No word that is read is there before.
  GIGABAR_DEVICE void poison() { fill(0, 0, plan_.receive_offset_bytes, 0xffffffff); }
  GIGABAR_DEVICE void check(std::uint32_t round, Rank sender) {
    if (!words_.is_ok()) return;
    each_slot([&](std::uint32_t slot) {
      const auto* const words = words_.template at<std::uint32_t>(receive_offset(slot), part_.bytes);
      check_words(scope_, words, part_.bytes, sender, {round, slot, part_.begin}, slot == 0 ? fault() : 0, end_);
    });
  }

  // And syncs.
  template <class Body>
  GIGABAR_DEVICE void each_slot(const Body& body) {
    const std::uint32_t count = plan_.slot_count < plan_.window ? plan_.slot_count : plan_.window;
    for (std::uint32_t slot = 0; slot < count; ++slot) body(slot);
    scope_.sync();
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const std::uint32_t index_;
  UnitEnd* const end_;
  const Part part_ = part_of(plan_, index_);
  std::uint32_t round_ = 0;
  UnitWords<Scope> words_{scope_, plan_, end_};
  device::Channel channel_;
};

// --- Which unit does a plan -----------------------------------------------------------------------------------------------------

// run(the kernel's body), which has yet to be told where it reports.
template <class Run>
auto run_body(const RoundPlan& plan, const Run& run) {
  if (plan.op == Op::message && plan.measure != Measure::latency) return run(UnitBody<MessageWindowUnit, RoundPlan>{plan});
  if (plan.op == Op::reply) {
    return plan.is_active ? run(UnitBody<FirstReplyUnit, RoundPlan>{plan}) : run(UnitBody<SecondReplyUnit, RoundPlan>{plan});
  }
  if (plan.op == Op::message) {
    return plan.is_active ? run(UnitBody<FirstMessageUnit, RoundPlan>{plan}) : run(UnitBody<SecondMessageUnit, RoundPlan>{plan});
  }
  if (is_atomic(plan.op)) return run(UnitBody<AtomicUnit, RoundPlan>{plan});
  if (!plan.is_of_blocks && reads_in_turn(plan)) return run(UnitBody<ReadUnit, RoundPlan>{plan});
  if (has_pieces(plan)) return run(UnitBody<PieceUnit, RoundPlan>{plan});
  if (!is_lean(plan)) return run(UnitBody<RoundUnit, RoundPlan>{plan});
  const bool is_direct = plan.queue_count == 0;
  if (plan.measure == Measure::latency)
    return is_direct ? run(UnitBody<DirectPingUnit, RoundPlan>{plan}) : run(UnitBody<QueuePingUnit, RoundPlan>{plan});
  return is_direct ? run(UnitBody<LeanDirectUnit, RoundPlan>{plan}) : run(UnitBody<LeanQueueUnit, RoundPlan>{plan});
}

}  // namespace gigabar::tool::device_ranks
