// SPDX-License-Identifier: Apache-2.0
// What of a link goes over lanes: the pieces of large writes.
#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::uint64_t kLaneBytes = 64U << 10;      // smaller writes are sooner through without another thread
constexpr std::uint64_t kMinPiece = 32U << 10;       // a write is cut finer than UCX asks for, so that every lane has some of it
constexpr std::uint64_t kPieceAlignment = 4U << 10;  // copies go page by page
// Pieces that a lane has of one link: 3 ms of work. A lane that waits for this thread, or this thread for a lane, costs more than a
// queue: on two processors, where both take turns with the peer's, host memory went over one connection at 2 to 4 GB/s with 32
// pieces and at 6 with 256; staged writes between two H200 over four connections, medians of nine rounds in turns, at 14.1 with 32
// and at 15.6 with 256 (host memory 16.6 and 16.5).
constexpr unsigned kMaxLoad = 256;

}  // namespace

UcxLink::Write UcxLink::make_write(std::uint64_t cookie, const Place& from, const Access& to) const {
  Write write{.cookie = cookie, .piece_bytes = piece_bytes_, .from = from, .to = to};
  if (lane_count_ == 0 || to.bytes < kLaneBytes) return write;
  write.is_by_lanes = true;
  const std::uint64_t share = (to.bytes / lane_count_ + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  write.piece_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(share, kMinPiece), piece_bytes_));
  return write;
}

void UcxLink::connect_lanes(const Invitation& invitation) {
  const auto& lanes = hub_->lanes();
  lane_count_ = std::min(lanes.size(), invitation.lanes.size());
  for (std::size_t index = 0; index < lane_count_; ++index) {
    lanes[index]->connect(number_, peer_number_, invitation.lanes[index], object());
    piece_bytes_ = std::min(piece_bytes_, lanes[index]->piece_bytes());
  }
  if (lane_count_ > 0) limits_.quick_read_bytes = kLaneBytes - 1;  // answers to reads take no lanes
}

void UcxLink::leave_lanes(bool is_cancelling) {
  if (is_off_lanes_) return;
  const auto& lanes = hub_->lanes();
  // A lane that is told twice, since there was no memory to tell the next one, left at the first time.
  for (std::size_t index = 0; index < lane_count_; ++index) lanes[index]->leave(number_, is_cancelling);
  is_off_lanes_ = true;
}

std::size_t UcxLink::emptiest_lane() const {
  return static_cast<std::size_t>(
      std::min_element(lane_load_.begin(), lane_load_.begin() + static_cast<std::ptrdiff_t>(lane_count_)) - lane_load_.begin());
}

bool UcxLink::can_send_next() const {
  if (outgoing_.empty()) return false;
  const Write* const write = outgoing_.front().write;
  if (write == nullptr || !write->is_by_lanes) return under_way_ < kMaxUnderWay;
  return lane_load_[emptiest_lane()] < kMaxLoad && next_piece_ - acknowledged_pieces_ < kPieceWindow;
}

void UcxLink::send_by_lane(Write& write, const std::byte* from, std::uint64_t bytes) {
  const std::size_t lane = emptiest_lane();
  ++lane_load_[lane];
  ++pieces_under_way_;
  const Access to{write.to.region, 0, write.to.guard, write.to.offset + write.sent_bytes, bytes};
  hub_->lanes()[lane]->send({number_, from, static_cast<std::uint32_t>(bytes), next_piece_++, to, &write});
}

void UcxLink::take_event(std::size_t lane, const LaneEvent& event) {
  if (event.kind == LaneEvent::Kind::sent) return sent_by_lane(lane, event);
  if (state_ == LinkState::broken) return;
  switch (event.kind) {
    case LaneEvent::Kind::heard: lanes_heard_.set(lane); return become_ready();
    case LaneEvent::Kind::placed: return take_piece(event.number);
    case LaneEvent::Kind::lost: return lost(event.status);
    case LaneEvent::Kind::refused:
      return refuse(event.reason == Farewell::bad_access ? "a write to an unknown region, with a wrong guard or out of range"
                                                         : "it sent over a connection for data what does not belong there",
                    event.reason);
    case LaneEvent::Kind::failed: return fail(placing_failed(object()), Farewell::own_failure);
    case LaneEvent::Kind::sent:
    case LaneEvent::Kind::stranger: return;
  }
}

void UcxLink::sent_by_lane(std::size_t lane, const LaneEvent& event) {
  --lane_load_[lane];
  --pieces_under_way_;
  if (event.status != UCS_OK) return lost(event.status);
  if (state_ == LinkState::broken) return;  // its write may be gone
  finish_piece(*static_cast<Write*>(event.owner), event.bytes);
  pump();
}

// It is in its place; what waited for it may go on.
void UcxLink::take_piece(std::uint64_t number) {
  if (number < placed_below_ || number - placed_below_ >= kPieceWindow || placed_.test(number % kPieceWindow)) {
    return refuse("it repeated the number of a piece, or sent more of them than it had leave for");
  }
  placed_.set(number % kPieceWindow);
  while (placed_.test(placed_below_ % kPieceWindow)) placed_.reset(placed_below_++ % kPieceWindow);
  if (!inbox_.empty() && hub_->sink() != nullptr) deliver_inbox();
  if (bye_at_ && placed_below_ >= *bye_at_) return hear_bye(Farewell::closed);
  send_credit();
}

void UcxLink::take_piece_acknowledgement(std::uint64_t pieces) {
  if (pieces > next_piece_) return refuse("it acknowledged data that it was never sent");
  if (pieces <= acknowledged_pieces_) return;
  acknowledged_pieces_ = pieces;
  pump();
}

}  // namespace gigabar::transport::ucx
