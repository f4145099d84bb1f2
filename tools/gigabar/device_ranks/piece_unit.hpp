// SPDX-License-Identifier: Apache-2.0
// One scope of a kernel that fills the way to the partner with others: of large writes the scopes take pieces in turn, since a GPU
// gives them unlike shares of a link, and with parts of their own most would wait for the slowest.
#pragma once

#include "device_ranks/round_plan.hpp"
#include "device_ranks/unit.hpp"
#include "device_ranks/unit_words.hpp"
#include "gigabar/device/channel.hpp"

namespace gigabar::tool::device_ranks {

inline constexpr std::uint64_t kPiecesPerPart = 8;
inline constexpr std::uint64_t kMinPieceBytes = 64 << 10;

// Windows of writes that nobody checks, to a rank in reach, of enough bytes for many pieces.
inline bool has_pieces(const RoundPlan& plan) {
  const bool writes = plan.measure == Measure::bandwidth && plan.op == Op::write && plan.queue_count == 0 && !plan.is_checked;
  return writes && plan.is_active && plan.unit_count > 1 && plan.part_bytes >= kPiecesPerPart * kMinPieceBytes;
}

template <class Scope>
class PieceUnit {
 public:
  // `end` is zeroed, and that of the first unit lies `index` in front of it.
  GIGABAR_DEVICE PieceUnit(const Scope& scope, const RoundPlan& plan, std::uint32_t index, UnitEnd* end)
      : scope_(scope), plan_(plan), id_(round_end_of(index)), end_(end), next_piece_(&(end - index)->next_piece) {}

  // `samples`: [iteration_count]. The partner's unit answers each round, as it does those of a LeanUnit.
  GIGABAR_DEVICE void run(std::uint64_t* samples) const {
    const RunClock clock;
    const std::uint64_t piece_bytes = (plan_.part_bytes / kPiecesPerPart + 15) / 16 * 16;
    const std::uint64_t per_message = (plan_.message_bytes + piece_bytes - 1) / piece_bytes;
    const std::uint64_t per_round = per_message * plan_.window;
    const device::Timeout timeout{plan_.timeout_ns};
    device::DirectChannel channel;
    Status status = device::DirectChannel::open(scope_, plan_.fabric, plan_.partner, kDataSegment, kDataSegment, 0, channel);
    std::uint64_t piece = take_piece();
    std::uint32_t round = 0;
    for (; status == Status::ok && round < plan_.round_count(); ++round) {
      if (is_over(scope_, clock, plan_.timeout_ns)) {
        status = Status::timed_out;
        break;
      }
      if (round == plan_.warm_up_count && scope_.rank() == 0) end_->timed_from_ns = device::now_ns();
      for (; piece / per_round == round && status == Status::ok; piece = take_piece()) {
        const std::uint64_t begin = piece % per_message * piece_bytes;
        const std::uint64_t left = plan_.message_bytes - begin;
        status = channel.write(scope_, begin, plan_.receive_offset_bytes + begin, left < piece_bytes ? left : piece_bytes, timeout);
      }
      // The end of a window is seen behind all of it that is this unit's.
      if (status == Status::ok) status = channel.notify(scope_, id_, round + 1, device::Order::after_writes, 0, timeout);
      std::uint32_t found = 0;
      if (status == Status::ok) status = channel.notification_wait_until(scope_, id_, round + 1, timeout, found);
      if (status != Status::ok) break;
      if (scope_.rank() != 0) continue;
      if (round >= plan_.warm_up_count) samples[round - plan_.warm_up_count] = device::now_ns();
      if (plan_.plants_fault && round + 1 == plan_.round_count()) found ^= 1;
      if (found != round + 1) report_wrong(end_, {round, 0, 0}, round + 1, found);
    }
    std::uint32_t value = 0;
    if (status == Status::ok) status = device::notification_reset(scope_, plan_.fabric, kDataSegment, id_, value);
    clock.report(scope_, true, status, round, end_);
  }

 private:
  GIGABAR_DEVICE std::uint64_t take_piece() const {
    return scope_.broadcast(scope_.rank() == 0 ? device::fetch_add_device(next_piece_, 1) : std::uint64_t{0});
  }

  const Scope& scope_;
  const RoundPlan& plan_;
  const NotificationId id_;
  UnitEnd* const end_;
  std::uint64_t* const next_piece_;
};

}  // namespace gigabar::tool::device_ranks
