// SPDX-License-Identifier: Apache-2.0
// Units that one side has: the partner's kernel has nothing to do, or another unit, which answers.
#pragma once

#include "device_ranks/plans.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

// Rounds of once(round), one after another, each timed. `samples`: [iteration_count]. The last round that was begun is one of those
// that are done.
template <class Scope, class Once>
GIGABAR_DEVICE void play_alone(const Scope& scope, const RoundPlan& plan, const RunClock& clock, std::uint32_t rounds,
                               std::uint64_t* samples, Done& done, const Once& once) {
  const std::uint32_t warm_up = plan.warm_up_count;
  for (; done.status == Status::ok && done.rounds < rounds; ++done.rounds) {
    if (done.rounds % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns)) {
      done.status = Status::timed_out;
      break;
    }
    scope.sync();
    const std::uint64_t before = ticks();
    done.status = once(done.rounds);
    const std::uint64_t after = ticks();
    if (scope.rank() == 0 && done.rounds >= warm_up) samples[done.rounds - warm_up] = after - before;
  }
}

// One scope of a kernel that changes a word of its partner and gets its old value, round by round. A latency's one unit has its
// queue to itself (has_channel()).
template <class Scope>
struct AtomicUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed

  // `samples`: [iteration_count].
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    device::Channel channel;
    Done done;
    done.status =
        device::Channel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, queue_of(plan, index), channel);
    const std::uint64_t offset = plan.words_offset_bytes + index * sizeof(std::uint64_t);
    const device::Timeout timeout{plan.timeout_ns};
    std::uint64_t expected = 0;  // what the word holds before the first round
    if (done.status == Status::ok) done.status = channel.atomic_fetch_add(scope, offset, 0, timeout, expected);
    play_alone(scope, plan, clock, plan.round_count(), samples, done, [&](std::uint32_t round) {
      std::uint64_t old = 0;
      const Status status = plan.op == Op::fetch_add ? channel.atomic_fetch_add(scope, offset, 1, timeout, old)
                                                     : channel.compare_swap(scope, offset, expected, expected + 1, timeout, old);
      if (plan.plants_fault && round + 1 == plan.round_count()) old ^= 1;
      // In front of the clock, which would not wait for the value.
      if (status == Status::ok && old != expected && scope.rank() == 0) report_wrong(end, {round, 0, 0}, expected, old);
      ++expected;
      return status;
    });
    channel.close(scope);
    clock.report(scope, true, done.status, done.rounds, end);
  }
};

// Whether a ReadUnit can do a plan, and does what a RoundUnit would.
inline bool reads_in_turn(const RoundPlan& plan) {
  return plan.op == Op::read && plan.measure == Measure::latency && !plan.is_checked && !plan.only_fills;
}

// Reads one after another that nobody checks, in a loop that lies in registers as a whole: see lean_unit.hpp.
template <class Scope>
struct ReadUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed

  // `samples`: [iteration_count].
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const Part part = part_of(plan, index);
    const device::Post post{queue_of(plan, index), {plan.timeout_ns}, plan.sharing};
    Done done;
    play_alone(scope, plan, clock, part.is_there ? plan.round_count() : 0, samples, done, [&](std::uint32_t) {
      const Status posted = device::read(scope, plan.fabric, {kDataSegment, plan.receive_offset_bytes + part.begin},
                                         {plan.partner, kDataSegment, part.begin}, part.bytes, post);
      return posted == Status::ok ? device::wait(scope, plan.fabric, post.queue, post.timeout) : posted;
    });
    clock.report(scope, true, done.status, done.rounds, end);
  }
};

inline constexpr std::uint64_t kPiecesPerPart = 8;
inline constexpr std::uint64_t kMinPieceBytes = 64 << 10;

// Windows of writes that nobody checks, to a rank in reach, of enough bytes for many pieces.
inline bool has_pieces(const RoundPlan& plan) {
  const bool writes = plan.measure == Measure::bandwidth && plan.op == Op::write && plan.queue_count == 0 && !plan.is_checked;
  return writes && plan.is_active && plan.unit_count > 1 && plan.part_bytes >= kPiecesPerPart * kMinPieceBytes;
}

// One scope of a kernel that fills the way to the partner with others: of large writes the scopes take pieces in turn, since a GPU
// gives them unlike shares of a link, and with parts of their own most would wait for the slowest.
template <class Scope>
struct PieceUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed; that of the first unit lies `index` in front of it

  // `samples`: [iteration_count]. The partner's unit answers each round, as it does those of a LeanUnit.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const NotificationId id = round_end_of(index);
    const std::uint64_t piece_bytes = (plan.part_bytes / kPiecesPerPart + 15) / 16 * 16;
    const std::uint64_t per_message = (plan.message_bytes + piece_bytes - 1) / piece_bytes;
    const std::uint64_t per_round = per_message * plan.window;
    const device::Timeout timeout{plan.timeout_ns};
    device::DirectChannel channel;
    Status status = device::DirectChannel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, 0, channel);
    std::uint64_t piece = take_piece();
    std::uint32_t round = 0;
    for (; status == Status::ok && round < plan.round_count(); ++round) {
      if (is_over(scope, clock, plan.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      if (round == plan.warm_up_count && scope.rank() == 0) end->timed_from_ns = device::now_ns();
      for (; piece / per_round == round && status == Status::ok; piece = take_piece()) {
        const std::uint64_t begin = piece % per_message * piece_bytes;
        const std::uint64_t left = plan.message_bytes - begin;
        status = channel.write(scope, begin, plan.receive_offset_bytes + begin, left < piece_bytes ? left : piece_bytes, timeout);
      }
      // The end of a window is seen behind all of it that is this unit's.
      if (status == Status::ok) status = channel.notify(scope, id, round + 1, device::Order::after_writes, 0, timeout);
      std::uint32_t found = 0;
      if (status == Status::ok) status = channel.notification_wait_until(scope, id, round + 1, timeout, found);
      if (status != Status::ok) break;
      if (scope.rank() != 0) continue;
      if (round >= plan.warm_up_count) samples[round - plan.warm_up_count] = device::now_ns();
      if (plan.plants_fault && round + 1 == plan.round_count()) found ^= 1;
      if (found != round + 1) report_wrong(end, {round, 0, 0}, round + 1, found);
    }
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope, plan.fabric, kDataSegment, id, value);
    clock.report(scope, true, status, round, end);
  }

 private:
  GIGABAR_DEVICE std::uint64_t take_piece() const {
    return scope.broadcast(scope.rank() == 0 ? device::fetch_add_device(&(end - index)->next_piece, 1) : std::uint64_t{0});
  }
};

}  // namespace gigabar::tool::device_ranks
