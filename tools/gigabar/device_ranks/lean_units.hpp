// SPDX-License-Identifier: Apache-2.0
// Units that do one thing, by few instructions: loops that lie in registers as a whole, where RoundUnit, which can do everything,
// lies in local memory that each wait's acquire empties from the cache (0.4 us of each message on an H200).
#pragma once

#include <type_traits>

#include "device_ranks/unit.hpp"
#include "gigabar/device/channel.hpp"
#include "gigabar/device/message.hpp"

namespace gigabar::tool::device_ranks {

// --- Windows of what a channel sends --------------------------------------------------------------------------------------------

// Whether a LeanUnit, or of latencies a PingUnit, can do a plan, and does what a RoundUnit would.
inline bool is_lean(const RoundPlan& plan) {
  const bool only_sends = plan.op <= Op::write || plan.op == Op::write_count;
  const bool looks_at_data = plan.is_checked && plan.message_bytes != 0;
  return only_sends && has_channel(plan) && !looks_at_data && !plan.ends_with_flush();
}

inline constexpr std::uint64_t kPiecesPerPart = 8;
inline constexpr std::uint64_t kMinPieceBytes = 64 << 10;

// Windows of writes that nobody checks, to a rank in reach, of enough bytes for many pieces.
inline bool has_pieces(const RoundPlan& plan) {
  const bool writes = plan.measure == Measure::bandwidth && plan.op == Op::write && plan.queue_count == 0 && !plan.is_checked;
  return writes && plan.is_active && plan.unit_count > 1 && plan.part_bytes >= kPiecesPerPart * kMinPieceBytes;
}

// TakesPieces: of large writes the scopes of the active side take pieces in turn, since a GPU gives them unlike shares of a link,
// and with parts of their own most would wait for the slowest.
template <class Scope, class Channel, bool TakesPieces = false>
struct LeanUnit {
  static constexpr bool kTakesBlocks = std::is_same_v<Channel, device::DirectChannel> && !TakesPieces;

  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed; that of the first unit lies `index` in front of it

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const bool is_active = TakesPieces || plan.is_active;
    const Part part = part_of(plan, index);
    const std::uint32_t rounds = TakesPieces || part.is_there ? plan.round_count() : 0;
    const NotificationId messages = messages_of(index), round_end = round_end_of(index);
    const device::Timeout timeout{plan.timeout_ns};
    // A window is answered by a word.
    const Op op = is_active ? plan.op : Op::notify;
    const std::uint32_t window = is_active ? plan.window : 1;

    Channel channel;
    Status status = Channel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, queue_of(plan, index), channel);
    std::uint32_t rounds_done = 0;
    [[maybe_unused]] std::uint64_t piece = TakesPieces ? take_piece() : 0;
    // One place that sends and one that waits, which the compiler keeps in line: the passive side's first step sends nothing, and
    // its last one does nothing else.
    for (std::uint32_t step = 0; status == Status::ok && rounds_done < rounds; ++step) {
      if (step % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns, status)) break;
      scope.sync();
      if (step == plan.warm_up_count && scope.rank() == 0) end->timed_from_ns = device::now_ns();
      const std::uint32_t round = is_active ? step + 1 : step;
      if constexpr (TakesPieces) {
        status = write_pieces(channel, step, piece);
        // The end of a window is seen behind all of it that is this unit's.
        if (status == Status::ok) status = channel.notify(scope, round_end, round, device::Order::after_writes, 0, timeout);
      }
      for (std::uint32_t message = 1; !TakesPieces && round != 0 && message <= window && status == Status::ok; ++message) {
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
        const device::Order order = is_last && is_active ? device::Order::after_writes : device::Order::none;
        if (status == Status::ok) status = channel.notify(scope, id, value, order, 0, timeout);
      }
      if (!is_active) rounds_done = step;
      if (status != Status::ok || rounds_done == rounds) break;
      std::uint32_t found = 0;
      status = channel.notification_wait_until(scope, round_end, step + 1, timeout, found);
      if (status != Status::ok) break;
      if (is_active) {
        if (scope.rank() == 0 && step >= plan.warm_up_count) samples[step - plan.warm_up_count] = device::now_ns();
        rounds_done = step + 1;
      }
      if (plan.plants_fault && step + 1 == rounds) found ^= 1;
      expect({step, 0, 0}, step + 1, found);
      if (!is_active && plan.op != Op::write && plan.window > 1) {
        status = device::notification_reset(scope, plan.fabric, kDataSegment, messages, found);
        expect({step, plan.window - 2, 0}, plan.window - 1, found);
      }
    }
    channel.close(scope);
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope, plan.fabric, kDataSegment, round_end, value);
    clock.report(scope, is_active, status, rounds_done, end);
  }

 private:
  // Those of a window that this unit gets. `piece`: the next one of all windows that is its own.
  GIGABAR_DEVICE Status write_pieces(Channel& channel, std::uint32_t window, std::uint64_t& piece) const {
    const std::uint64_t piece_bytes = (plan.part_bytes / kPiecesPerPart + 15) / 16 * 16;
    const std::uint64_t per_message = (plan.message_bytes + piece_bytes - 1) / piece_bytes;
    Status status = Status::ok;
    for (; piece / (per_message * plan.window) == window && status == Status::ok; piece = take_piece()) {
      const std::uint64_t begin = piece % per_message * piece_bytes;
      const std::uint64_t left = plan.message_bytes - begin;
      const std::uint64_t bytes = left < piece_bytes ? left : piece_bytes;
      status = channel.write(scope, begin, plan.receive_offset_bytes + begin, bytes, device::Timeout{plan.timeout_ns});
    }
    return status;
  }
  GIGABAR_DEVICE std::uint64_t take_piece() const {
    return scope.broadcast(scope.rank() == 0 ? device::fetch_add_device(&(end - index)->next_piece, 1) : std::uint64_t{0});
  }
  GIGABAR_DEVICE void expect(const WordPlace& place, std::uint32_t right, std::uint32_t found) const {
    if (found != right && scope.rank() == 0) report_wrong(end, place, right, found);
  }
};

template <class Scope>
using LeanDirectUnit = LeanUnit<Scope, device::DirectChannel>;
template <class Scope>
using LeanQueueUnit = LeanUnit<Scope, device::QueueChannel>;
template <class Scope>
using PieceUnit = LeanUnit<Scope, device::DirectChannel, true>;

// --- A message each way in turn -------------------------------------------------------------------------------------------------

// One scope of a kernel and its partner's. A round trip over NVLink takes as long as 2000 instructions of one thread that wait for
// each other, so each op and each side has a loop of its own, in which nothing else is decided.
template <class Scope, class Channel>
struct PingUnit {
  static constexpr bool kTakesBlocks = std::is_same_v<Channel, device::DirectChannel>;

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
    plan.is_active ? play_as<O, true>(channel, clock, samples, done) : play_as<O, false>(channel, clock, samples, done);
  }

  template <Op O, bool IsActive>
  GIGABAR_DEVICE void play_as(Channel& channel, const RunClock& clock, std::uint64_t* samples, Done& done) const {
    const std::uint32_t rounds = plan.round_count(), warm_up = plan.warm_up_count;
    const device::Timeout timeout{plan.timeout_ns};
    std::uint32_t until_look = 1;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (--until_look == 0) {
        until_look = plan.rounds_per_look;
        if (is_over(scope, clock, plan.timeout_ns, done.status)) return;
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
template <class Scope>
using QueuePingUnit = PingUnit<Scope, device::QueueChannel>;

// --- Units that one side has: the partner's kernel has nothing to do, or another unit, which answers ----------------------------

// Whether a ReadUnit can do a plan, and does what a RoundUnit would.
inline bool reads_in_turn(const RoundPlan& plan) {
  return plan.op == Op::read && plan.measure == Measure::latency && !plan.is_checked;
}

// One scope of a kernel that reads from its partner, which nobody checks, or changes a word of it and gets its old value, round by
// round.
template <class Scope, bool Reads>
struct OneSidedUnit {
  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed

  // `samples`: [iteration_count].
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    if constexpr (Reads)
      read(samples);
    else
      change_words(samples);
  }

 private:
  GIGABAR_DEVICE void read(std::uint64_t* samples) const {
    const Part part = part_of(plan, index);
    const device::Post post{queue_of(plan, index), {plan.timeout_ns}, plan.sharing};
    play(part.is_there ? plan.round_count() : 0, Status::ok, samples, [&](std::uint32_t) {
      const Status posted = device::read(scope, plan.fabric, {kDataSegment, plan.receive_offset_bytes + part.begin},
                                         {plan.partner, kDataSegment, part.begin}, part.bytes, post);
      return posted == Status::ok ? device::wait(scope, plan.fabric, post.queue, post.timeout) : posted;
    });
  }

  // A latency's one unit has its queue to itself (has_channel()).
  GIGABAR_DEVICE void change_words(std::uint64_t* samples) const {
    device::Channel channel;
    Status opened =
        device::Channel::open(scope, plan.fabric, plan.partner, kDataSegment, kDataSegment, queue_of(plan, index), channel);
    const std::uint64_t offset = plan.words_offset_bytes + index * sizeof(std::uint64_t);
    const device::Timeout timeout{plan.timeout_ns};
    std::uint64_t expected = 0;  // what the word holds before the first round
    if (opened == Status::ok) opened = channel.atomic_fetch_add(scope, offset, 0, timeout, expected);
    play(plan.round_count(), opened, samples, [&](std::uint32_t round) {
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
  }

  // Rounds of once(round), one after another, each timed, where `status` is ok. The last round that was begun is one of those that
  // are done.
  template <class Once>
  GIGABAR_DEVICE void play(std::uint32_t rounds, Status status, std::uint64_t* samples, const Once& once) const {
    const RunClock clock;
    const std::uint32_t warm_up = plan.warm_up_count;
    std::uint32_t round = 0;
    for (; status == Status::ok && round < rounds; ++round) {
      if (round % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns, status)) break;
      scope.sync();
      const std::uint64_t before = ticks();
      status = once(round);
      const std::uint64_t after = ticks();
      if (scope.rank() == 0 && round >= warm_up) samples[round - warm_up] = after - before;
    }
    clock.report(scope, true, status, round, end);
  }
};

template <class Scope>
using ReadUnit = OneSidedUnit<Scope, true>;
template <class Scope>
using AtomicUnit = OneSidedUnit<Scope, false>;

// --- Messages by rings, one to each unit: in turn, or in windows that a message of 4 bytes answers ------------------------------

// What a kernel plays. The code of two would leave too few registers to each.
enum class Play : std::uint8_t { first_of_turns, second_of_turns, windows, first_of_replies, second_of_replies };

template <class Scope, Play What>
struct MessageUnit {
  static constexpr bool kTakesBlocks = true;

  const Scope& scope;
  const RoundPlan& plan;
  const std::uint32_t index;
  UnitEnd* const end;  // zeroed
  const Part part = part_of(plan, index);
  std::byte* const own = device::detail::find_bytes(plan.fabric, plan.fabric.rank, kDataSegment, 0, 0).address;  // its segment

  // `samples`: [iteration_count], written by the active side.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    device::SendRing to;
    device::RecvRing from;
    Done done;
    done.status = open_ring(plan.fabric, plan.partner, index, to);
    if (done.status == Status::ok) done.status = open_ring(plan.fabric, plan.partner, index, from);
    if (done.status == Status::ok && part.is_there) {
      if constexpr (What == Play::windows)
        play_windows(to, from, clock, samples, done);
      else if constexpr (What == Play::first_of_replies || What == Play::second_of_replies)
        play_replies(to, from, clock, samples, done);
      else
        play_turns(to, from, clock, samples, done);
    }
    to.close(scope);
    from.close(scope);
    clock.report(scope, plan.is_active, done.status, done.rounds, end);
  }

 private:
  // Before a round. False: the time is over.
  GIGABAR_DEVICE bool begin(std::uint32_t round, const RunClock& clock, Done& done) const {
    if (round % plan.rounds_per_look == 0 && is_over(scope, clock, plan.timeout_ns, done.status)) return false;
    if (round == plan.warm_up_count && scope.rank() == 0) end->timed_from_ns = device::now_ns();
    return done.status == Status::ok;
  }

  // A message each way per round.
  GIGABAR_DEVICE void play_turns(device::SendRing& to, device::RecvRing& from, const RunClock& clock, std::uint64_t* samples,
                                 Done& done) const {
    constexpr bool kIsActive = What == Play::first_of_turns;
    const std::uint32_t rounds = plan.round_count(), warm_up = plan.warm_up_count;
    const bool is_checked = plan.is_checked;
    for (; done.rounds < rounds && begin(done.rounds, clock, done); ++done.rounds) {
      if (is_checked && kIsActive) fill(done.rounds);
      if constexpr (kIsActive) scope.sync();
      const std::uint64_t before = ticks();
      if constexpr (kIsActive) done.status = send(to, sent(0));
      if (done.status == Status::ok) done.status = recv(from, received(0));
      const std::uint64_t after = ticks();
      if (done.status == Status::ok && is_checked) {
        check(done.rounds, 0, true);
        if constexpr (!kIsActive) fill(done.rounds);  // behind the last message's words: receiving syncs the scope
      }
      if (!kIsActive && done.status == Status::ok) done.status = send(to, sent(0));
      if (done.status != Status::ok) return;
      if (kIsActive && scope.rank() == 0 && done.rounds >= warm_up) samples[done.rounds - warm_up] = after - before;
    }
  }

  // A message each way per round. Each is answered word by word, by the next one, so that a round ends where the next begins.
  GIGABAR_DEVICE void play_replies(device::SendRing& to, device::RecvRing& from, const RunClock& clock, std::uint64_t* samples,
                                   Done& done) const {
    constexpr bool kIsActive = What == Play::first_of_replies;
    constexpr std::uint32_t kAhead = kIsActive ? 1 : 0;  // rounds that are sent before the one that is received
    const std::uint32_t rounds = plan.round_count(), warm_up = plan.warm_up_count;
    // By value: what is captured by reference lies in local memory, which takes 0.08 us of each message.
    const auto copy = [source = sent(0), destination = received(0)](std::uint64_t i, std::uint32_t word) {
      destination[i] = word;
      return source[i];
    };
    std::uint64_t before = ticks();
    const auto end_round = [&] {
      const std::uint64_t after = ticks();
      if (done.status != Status::ok) return;
      if (plan.is_checked) {
        check(done.rounds, 0, true);
        fill(done.rounds + kAhead + 1);
      }
      if (kIsActive && scope.rank() == 0 && done.rounds >= warm_up) samples[done.rounds - warm_up] = after - before;
      before = after;
      ++done.rounds;
    };
    if (plan.is_checked) fill(0);
    if constexpr (kIsActive) done.status = send(to, sent(0));
    if (plan.is_checked && kIsActive) {
      scope.sync();  // all words of the first message are stored
      fill(1);
    }
    while (done.status == Status::ok && done.rounds + kAhead < rounds && begin(done.rounds, clock, done)) {
      std::uint64_t bytes = 0;
      done.status = device::reply_words(scope, from, to, copy, bytes, timeout());
      if (done.status == Status::ok && bytes != part.bytes) done.status = Status::device_error;
      end_round();
    }
    if constexpr (kIsActive) {
      if (done.status != Status::ok) return;
      done.status = recv(from, received(0));
      end_round();
    }
  }

  // Windows of messages, which a message with the number of the round answers.
  GIGABAR_DEVICE void play_windows(device::SendRing& to, device::RecvRing& from, const RunClock& clock, std::uint64_t* samples,
                                   Done& done) const {
    const std::uint32_t rounds = plan.round_count();
    for (; done.rounds < rounds && begin(done.rounds, clock, done); ++done.rounds) {
      const std::uint32_t round = done.rounds;
      if (plan.is_checked && plan.is_active) fill(round);
      if (plan.is_active) scope.sync();
      done.status = plan.is_active ? send_window(to) : recv_window(from, round);
      if (done.status == Status::ok) {
        done.status = plan.is_active ? take_answer(from, round) : device::send_value(scope, to, round, timeout());
      }
      if (done.status != Status::ok) return;
      if (plan.is_active && scope.rank() == 0 && round >= plan.warm_up_count) {
        samples[round - plan.warm_up_count] = device::now_ns();
      }
    }
  }

  GIGABAR_DEVICE device::Timeout timeout() const { return {plan.timeout_ns}; }
  // What is sent, or received, in a slot of a window.
  GIGABAR_DEVICE std::uint32_t* sent(std::uint32_t slot) const { return words_at(slot * plan.slot_stride_bytes); }
  GIGABAR_DEVICE std::uint32_t* received(std::uint32_t slot) const {
    return words_at(plan.receive_offset_bytes + slot * plan.slot_stride_bytes);
  }
  GIGABAR_DEVICE std::uint32_t* words_at(std::uint64_t offset) const {
    return reinterpret_cast<std::uint32_t*>(own + offset + part.begin);
  }
  // One slot behind the other, again and again. A division, or a product and three sums, would take as long as a tenth of a
  // message.
  struct Slots {
    std::uint32_t* const first;
    const std::uint64_t stride_words;
    const std::uint32_t count;
    std::uint32_t* at = first;
    std::uint32_t number = 0;

    GIGABAR_DEVICE void pass() {
      number = number + 1 == count ? 0 : number + 1;
      at = number == 0 ? first : at + stride_words;
    }
  };
  GIGABAR_DEVICE Slots slots_from(std::uint32_t* first) const {
    return {first, plan.slot_stride_bytes / sizeof(std::uint32_t), plan.slot_count};
  }

  GIGABAR_DEVICE Status send(device::SendRing& to, const std::uint32_t* words) const {
    return device::send(scope, to, words, part.bytes, timeout());
  }
  GIGABAR_DEVICE Status recv(device::RecvRing& from, std::uint32_t* words) const {
    std::uint64_t bytes = 0;
    const Status status = device::recv(scope, from, words, part.bytes, bytes, timeout());
    return status == Status::ok && bytes != part.bytes ? Status::device_error : status;
  }

  GIGABAR_DEVICE Status send_window(device::SendRing& to) const {
    Status status = Status::ok;
    Slots slots = slots_from(sent(0));
    for (std::uint32_t left = plan.window; left != 0 && status == Status::ok; --left, slots.pass()) status = send(to, slots.at);
    return status;
  }
  GIGABAR_DEVICE Status recv_window(device::RecvRing& from, std::uint32_t round) const {
    Status status = Status::ok;
    Slots slots = slots_from(received(0));
    for (std::uint32_t left = plan.window; left != 0 && status == Status::ok; --left, slots.pass()) {
      status = recv(from, slots.at);
      if (status == Status::ok && plan.is_checked) check(round, slots.number, left == plan.window);
    }
    return status;
  }
  GIGABAR_DEVICE Status take_answer(device::RecvRing& from, std::uint32_t round) const {
    std::uint32_t value = 0;
    const Status status = device::recv_value(scope, from, value, timeout());
    if (status == Status::ok && value != round && scope.rank() == 0) report_wrong(end, {round, 0, 0}, round, value);
    return status;
  }

  // What this rank sends in a round.
  GIGABAR_DEVICE void fill(std::uint32_t round) const {
    const std::uint32_t count = plan.slot_count < plan.window ? plan.slot_count : plan.window;
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      fill_words(scope, sent(slot), part.bytes, plan.fabric.rank, {round, slot, part.begin});
    }
    scope.sync();
  }
  GIGABAR_DEVICE void check(std::uint32_t round, std::uint32_t slot, bool is_first) const {
    const bool is_false = plan.plants_fault && round + 1 == plan.round_count() && is_first;
    check_words(scope, received(slot), part.bytes, plan.partner, {round, slot, part.begin}, is_false ? 1 : 0, end);
    scope.sync();
  }
};

template <class Scope>
using FirstMessageUnit = MessageUnit<Scope, Play::first_of_turns>;
template <class Scope>
using SecondMessageUnit = MessageUnit<Scope, Play::second_of_turns>;
template <class Scope>
using MessageWindowUnit = MessageUnit<Scope, Play::windows>;
template <class Scope>
using FirstReplyUnit = MessageUnit<Scope, Play::first_of_replies>;
template <class Scope>
using SecondReplyUnit = MessageUnit<Scope, Play::second_of_replies>;

}  // namespace gigabar::tool::device_ranks
