// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel and its partner's that send each other a message in turn. A round trip over NVLink takes as long as 2000
// instructions of one thread that wait for each other, so each op and each side has a loop of its own, in which nothing else is
// decided.
#pragma once

#include "device_ranks/plans.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

template <class Scope, class Channel>
struct PingUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed
  const Part part = part_of(plan, index);
  const NotificationId id = round_end_of(index);

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    Channel channel;
    Done done;
    done.status = Channel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, queue_of(plan, index), channel);
    if (done.status == Status::ok && part.is_there) {
      switch (plan.op) {
        case Op::notify_ordered: play<Op::notify_ordered>(channel, clock, samples, done); break;
        case Op::payload: play<Op::payload>(channel, clock, samples, done); break;
        case Op::write_notify: play<Op::write_notify>(channel, clock, samples, done); break;
        case Op::write_count: play<Op::write_count>(channel, clock, samples, done); break;
        default: play<Op::notify>(channel, clock, samples, done); break;
      }
    }
    channel.close(scope);
    std::uint32_t value = 0;
    if (done.status == Status::ok) done.status = device::notification_reset(scope, plan.fabric, kDataSegment, id, value);
    clock.report(scope, plan.is_active, done.status, done.rounds, end);
  }

 private:
  template <Op O>
  GIGABAR_DEVICE void play(Channel& channel, const RunClock& clock, std::uint64_t* samples, Done& done) const {
    if (plan.is_active)
      play_as<O, true>(channel, clock, samples, done);
    else
      play_as<O, false>(channel, clock, samples, done);
  }

  template <Op O, bool IsActive>
  GIGABAR_DEVICE void play_as(Channel& channel, const RunClock& clock, std::uint64_t* samples, Done& done) const {
    const std::uint32_t rounds = plan.round_count(), warm_up = plan.warm_up_count;
    const device::Timeout timeout{plan.timeout_ns};
    std::uint32_t until_look = 1;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (--until_look == 0) {
        until_look = plan.rounds_per_look;
        if (is_over(scope, clock, plan.timeout_ns)) {
          done.status = Status::timed_out;
          return;
        }
      }
      if constexpr (IsActive) scope.sync();
      const std::uint64_t before = IsActive ? ticks() : 0;
      if constexpr (IsActive) done.status = send<O>(channel, round, timeout);
      if (done.status != Status::ok) return;
      std::uint32_t found = 0;
      std::uint64_t carried = 0;
      if constexpr (O == Op::write_count) {
        done.status = device::counter_wait(scope, plan.fabric, plan.partner, 0, plan.counter_base + round, timeout, found);
        found -= plan.counter_base;
      } else {
        done.status = channel.notification_wait_until(scope, id, round, timeout, found, O == Op::payload ? &carried : nullptr);
      }
      if (done.status != Status::ok) return;
      if constexpr (IsActive) {
        const std::uint64_t after = ticks();
        if (scope.rank() == 0 && round > warm_up) samples[round - warm_up - 1] = after - before;
      } else {
        done.status = send<O>(channel, round, timeout);
        if (done.status != Status::ok) return;
      }
      if (plan.plants_fault && round == rounds) found ^= 1;
      if (O == Op::payload && carried != payload_of(round)) found = 0;
      if (found != round && scope.rank() == 0) report_wrong(end, {round - 1, 0, 0}, round, found);
      done.rounds = round;
    }
  }

  template <Op O>
  GIGABAR_DEVICE Status send(Channel& channel, std::uint32_t round, device::Timeout timeout) const {
    if constexpr (O == Op::write_notify) {
      return channel.write_notify(scope, part.begin, plan.receive_offset_bytes + part.begin, part.bytes, id, round, timeout);
    } else if constexpr (O == Op::write_count) {
      return device::write_count(scope, plan.fabric, {kDataSegment, part.begin},
                                 {plan.partner, kDataSegment, plan.receive_offset_bytes + part.begin}, part.bytes, 0);
    } else {
      const device::Order order = O == Op::notify_ordered ? device::Order::after_writes : device::Order::none;
      return channel.notify(scope, id, round, order, O == Op::payload ? payload_of(round) : 0, timeout);
    }
  }
  GIGABAR_DEVICE static std::uint64_t payload_of(std::uint32_t value) { return value * kOdd64; }
};

template <class Scope>
using DirectPingUnit = PingUnit<Scope, device::DirectChannel>;
template <>
inline constexpr bool kTakesBlocks<DirectPingUnit> = true;
template <class Scope>
using QueuePingUnit = PingUnit<Scope, device::QueueChannel>;

}  // namespace gigabar::tool::device_ranks
