// SPDX-License-Identifier: Apache-2.0
// The ends of message rings: how a kernel opens one, and how far it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/device/handle.hpp"
#include "gigabar/device/memory.hpp"
#include "gigabar/device/message_line.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0::device {

inline constexpr std::uint64_t kMaxMessageBytes = 0xffffffff;

namespace detail {

inline constexpr std::uint32_t kWordBytes = sizeof(std::uint32_t);
GIGABAR_DEVICE constexpr std::uint32_t words_of(std::uint32_t bytes) {
  return bytes / kWordBytes + (bytes % kWordBytes != 0 ? 1 : 0);
}

}  // namespace detail

// Data of a piece's first line.
template <class Line>
inline constexpr std::uint64_t kFirstBytes = (Line::kWords - 1) * detail::kWordBytes;

// One end of a ring, open. It belongs to one scope from open_ring() to close(); each thread of the scope has its own
// object, with equal values. Another scope may open the end after a barrier with this one.
// What a message needs is kept as it is needed, in 32 bits: a message of a warp takes as long as its instructions, about 2 ns each.
template <class Line>
class BasicRing {
 public:
  GIGABAR_DEVICE void open(RingEnd& end) {
    kept_ = &end;
    lines_ = end.lines;
    credit_ = end.credit;
    status_ = end.status;
    line_count_ = end.line_count;
    const std::uint64_t piece = detail::kWordBytes * (std::uint64_t{line_count_ / 2} * Line::kWords - 1);
    piece_bytes_ = static_cast<std::uint32_t>(piece < kMaxPieceBytes ? piece : kMaxPieceBytes);
    position_ = end.state.position;
    first_ = static_cast<std::uint32_t>(position_) & (line_count_ - 1);
    lap_ = static_cast<std::uint32_t>(position_ >> lowest_bit(line_count_)) + 1;
    pending_ = static_cast<std::uint32_t>(position_ - end.state.credit);
    message_bytes = static_cast<std::uint32_t>(end.state.message_bytes);
    done_bytes = static_cast<std::uint32_t>(end.state.done_bytes);
    note_room();
  }
  // Keeps the state for who opens the end next.
  template <class Scope>
  GIGABAR_DEVICE void close(const Scope& scope) {
    if (kept_ != nullptr && scope.rank() == 0) kept_->state = {position_, position_ - pending_, message_bytes, done_bytes};
    kept_ = nullptr;
  }

  // The greatest piece of a message, half the ring. Longer messages wait for credit between pieces.
  GIGABAR_DEVICE std::uint32_t piece_bytes() const { return piece_bytes_; }
  // Lines sent or received since the ring was made.
  GIGABAR_DEVICE std::uint64_t position() const { return position_; }

  // For the functions below.
  // Lines that a piece of so many bytes takes; one word of the first line says how many bytes follow.
  GIGABAR_DEVICE static std::uint32_t lines_of(std::uint32_t bytes) {
    return (detail::words_of(bytes) + Line::kWords) / Line::kWords;
  }
  // Line k of the next piece. A piece goes around the ring's end at most once.
  GIGABAR_DEVICE MessageLine* line(std::uint32_t k) const { return lines_ + ((first_ + k) & (line_count_ - 1)); }
  GIGABAR_DEVICE std::uint32_t number(std::uint32_t k) const { return lap_ + (first_ + k >= line_count_ ? 1 : 0); }
  // Lines from k on, before line `end`, that lie behind each other.
  GIGABAR_DEVICE std::uint32_t run_of(std::uint32_t k, std::uint32_t end) const {
    const std::uint32_t most = line_count_ - ((first_ + k) & (line_count_ - 1));
    return end - k < most ? end - k : most;
  }
  GIGABAR_DEVICE void pass(std::uint32_t lines) {
    position_ += lines;
    pending_ += lines;
    first_ += lines;
    lap_ += first_ >= line_count_ ? 1 : 0;
    first_ &= line_count_ - 1;
    note_room();
  }
  // Line 0 and its number, in fewer instructions.
  GIGABAR_DEVICE MessageLine* first_line() const { return lines_ + first_; }
  GIGABAR_DEVICE std::uint32_t first_number() const { return lap_; }
  // This end when it has passed so many lines, computed before it has.
  GIGABAR_DEVICE void pass_early(std::uint32_t lines) {
    pass(lines);
    compute_now(first_);
    compute_now(lap_);
    compute_now(pending_);
  }
  GIGABAR_DEVICE std::uint32_t line_count() const { return line_count_; }
  // Lines that are not known to be emptied; of a receiver, whose emptying it has not told.
  GIGABAR_DEVICE std::uint32_t pending() const { return pending_; }
  GIGABAR_DEVICE void know(std::uint64_t credit) {
    pending_ = static_cast<std::uint32_t>(position_ - credit);
    note_room();
  }
  // Messages of fewer bytes are one piece, for which there is room. It is found out behind the stores of the message before.
  GIGABAR_DEVICE std::uint32_t room_bytes() const { return room_bytes_; }
  GIGABAR_DEVICE std::uint64_t* credit() const { return credit_; }
  GIGABAR_DEVICE const std::uint32_t* status() const { return status_; }

  std::uint32_t message_bytes = 0;  // of a message whose first pieces are sent or received
  std::uint32_t done_bytes = 0;     // of these pieces

 private:
  static constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{1} << 31;

  GIGABAR_DEVICE void note_room() {
    const std::uint32_t free = line_count_ - pending_, most = line_count_ / 2;
    const std::uint32_t lines = free < most ? free : most;
    room_bytes_ = lines == 0 ? 0 : (lines * Line::kWords - 1) * detail::kWordBytes + 1;
  }

  RingEnd* kept_ = nullptr;
  MessageLine* lines_ = nullptr;
  std::uint64_t* credit_ = nullptr;
  const std::uint32_t* status_ = nullptr;
  std::uint64_t position_ = 0;
  std::uint32_t line_count_ = 0, piece_bytes_ = 0, room_bytes_ = 0;
  std::uint32_t first_ = 0, lap_ = 0, pending_ = 0;  // first_: the next line's place; lap_: its number
};

template <class Line>
class BasicSendRing : public BasicRing<Line> {};
template <class Line>
class BasicRecvRing : public BasicRing<Line> {};

using SendRing = BasicSendRing<WholeLine>;
using RecvRing = BasicRecvRing<WholeLine>;
// Of rings with a CPU at one end.
using CpuSendRing = BasicSendRing<SplitLine>;
using CpuRecvRing = BasicRecvRing<SplitLine>;

namespace detail {

GIGABAR_DEVICE Status find_rings(const DeviceFabric& fabric, Rank rank, std::uint32_t ring, PeerRing*& found) {
  if (check_version(fabric) != Status::ok) return Status::not_supported;
  if (rank >= fabric.rank_count || ring >= fabric.ring_count) return Status::out_of_range;
  found = fabric.rings + static_cast<std::size_t>(rank) * fabric.ring_count + ring;
  return found->send.lines == nullptr ? Status::unavailable : Status::ok;
}

}  // namespace detail

// Opens ring `number` to `rank`, and the one of that number from `rank`. One scope at a time has an end open.
// Errors: out_of_range (no such rank or ring), unavailable (the rank is not load/store accessible), not_supported (check_version).
GIGABAR_DEVICE Status open_ring(const DeviceFabric& fabric, Rank rank, std::uint32_t number, SendRing& ring) {
  PeerRing* found = nullptr;
  const Status status = detail::find_rings(fabric, rank, number, found);
  if (status == Status::ok) ring.open(found->send);
  return status;
}
GIGABAR_DEVICE Status open_ring(const DeviceFabric& fabric, Rank rank, std::uint32_t number, RecvRing& ring) {
  PeerRing* found = nullptr;
  const Status status = detail::find_rings(fabric, rank, number, found);
  if (status == Status::ok) ring.open(found->recv);
  return status;
}

}  // namespace gigabar::inline v0::device
