// SPDX-License-Identifier: Apache-2.0
// What of a link goes over lanes: large writes, and the fences that tell which of them are before a message.
#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "transport/tcp/link.hpp"

namespace gigabar::transport::tcp {
namespace {

constexpr std::uint64_t kMinShareBytes = 32U << 10;
constexpr std::uint64_t kShareAlignment = 4U << 10;        // copies go page by page
constexpr std::uint64_t kMaxBehindFenceBytes = 64U << 20;  // that are looked through: more than sockets hold

}  // namespace

// --- Sending ---------------------------------------------------------------------------------------------------------------------

void TcpLink::begin_by_lanes(Place from, std::uint32_t region, Access to, std::uint64_t bytes, std::uint64_t cookie) {
  const std::uint64_t even = (bytes / lane_count_ + kShareAlignment) / kShareAlignment * kShareAlignment;
  const std::uint64_t share_bytes = std::max(even, kMinShareBytes);
  // One after the other they take the same lanes, whose threads are awake.
  if (lane_writes_.empty()) next_lane_ = 0;
  const std::uint64_t number = next_lane_write_++;
  LaneWrite& write = lane_writes_[number];
  write.cookie = cookie;
  write.missing_shares = static_cast<unsigned>((bytes + share_bytes - 1) / share_bytes);
  ++transfers_;
  is_fence_due_ = true;
  // A write of few shares goes where the last one ended.
  for (std::uint64_t left = bytes, part = 0; left > 0; left -= part) {
    part = std::min(share_bytes, left);
    const unsigned lane = std::exchange(next_lane_, (next_lane_ + 1) % lane_count_);
    try {
      transport_.lane(lane).send(serial_, {first_piece(FrameKind::write, region, to, from, part), &write.missing_shares, number});
    } catch (const std::bad_alloc&) {
      return fail(Error::out_of_memory(), Farewell::own_failure);  // its end is told with the link's
    }
    ++sent_shares_[lane];
    from.offset += part;
    to.offset += part;
  }
}

void TcpLink::put_fence() {
  if (!is_fence_due_) return;
  FrameHeader header = make_header(FrameKind::fence, 0, 0);
  static_assert(sizeof sent_shares_ <= sizeof header.body);
  std::memcpy(header.body.data(), sent_shares_.data(), sizeof sent_shares_);
  post_small(header);
  is_fence_due_ = false;
}

bool TcpLink::has_sent_all() const noexcept {
  return is_idle() && std::ranges::all_of(lane_writes_, [](const auto& item) { return item.second.missing_shares == 0; });
}

// --- Receiving -------------------------------------------------------------------------------------------------------------------

// Afterwards there is a fence_ where shares are missing.
void TcpLink::take_fence(const FrameHeader& header) {
  ShareCounts counts;
  std::memcpy(counts.data(), header.body.data(), sizeof counts);
  if (std::any_of(counts.begin() + lane_count_, counts.end(), [](std::uint32_t count) { return count != 0; })) {
    return refuse("it counts large writes over connections that the link has not");
  }
  fence_ = counts;
  pass_fence();
}

// Whether all shares before it are in place. Either a lane sees that it is waited for, or its share is seen here.
bool TcpLink::pass_fence() noexcept {
  lane_counts_->is_waited_for.store(true, std::memory_order_seq_cst);
  for (std::size_t lane = 0; lane < fence_->size(); ++lane) {
    const std::uint32_t placed = lane_counts_->placed_shares[lane].load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(placed - (*fence_)[lane]) < 0) return false;
  }
  lane_counts_->is_waited_for.store(false, std::memory_order_relaxed);
  fence_.reset();
  return true;
}

bool TcpLink::leave_fence(Sink& sink) {
  if (!fence_ || state_ != LinkState::ready || !pass_fence()) return false;
  const std::vector<std::byte> come = std::exchange(carried_, {});
  const auto rest = take_frames(come, sink);
  if (state_ != LinkState::ready) return true;
  carry(rest);
  if (!fence_) {
    is_hungry_ = true;
    transport_.attend_to(*this);
  }
  want_events();
  return true;
}

// Behind a fence that is not passed any more: what the peer said last. What is before that is of no use.
std::optional<Farewell> TcpLink::hear_farewell() {
  Scratch& scratch = transport_.scratch();
  std::vector<std::byte> come = std::exchange(carried_, {});
  std::uint64_t data_bytes = 0;  // of a frame, that are still to come
  for (std::uint64_t heard_bytes = 0; heard_bytes < kMaxBehindFenceBytes;) {
    std::span<const std::byte> left(come);
    for (;;) {
      const std::size_t part = std::min<std::uint64_t>(data_bytes, left.size());
      left = left.subspan(part);
      data_bytes -= part;
      if (left.size() < kHead) break;
      const auto header = parse_header(left);
      if (!header) return {};
      if (static_cast<FrameKind>(header->kind) == FrameKind::bye) return static_cast<Farewell>(header->number);
      left = left.subspan(kHead);
      data_bytes = header->data_bytes;
    }
    const iovec place{scratch.data(), scratch.size()};
    const secure::Moved moved = stream_->receive(std::span(&place, 1));
    if (moved.how != secure::Moved::How::ok) return {};
    heard_bytes += moved.bytes;
    come.erase(come.begin(), come.end() - static_cast<std::ptrdiff_t>(left.size()));
    come.insert(come.end(), scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  }
  return {};
}

// --- What lanes tell ------------------------------------------------------------------------------------------------------------

void TcpLink::take_event(const LaneEvent& event) {
  if (state_ == LinkState::broken) return;
  switch (event.kind) {
    case LaneEvent::Kind::sent: return finish(lane_writes_.extract(event.number).mapped().cookie, {});
    case LaneEvent::Kind::placed: return transport_.attend_to(*this);
    case LaneEvent::Kind::refused:
      return refuse(event.reason == Farewell::bad_access ? "a write to an unknown region, with a wrong guard or out of range"
                                                         : "what it sent over a connection for large writes is none",
                    event.reason);
    case LaneEvent::Kind::failed: return fail_to_place();
    case LaneEvent::Kind::gone: return fail_as_taken_back("write");
    case LaneEvent::Kind::over:
      if (event.end.how != secure::Moved::How::ended) return hear_end(event.end);
  }
  // The link's own connection brings what the peer said last. Where it stays as it is, this one was closed alone.
  if (lane_ended_at_ns_ != 0) return;
  lane_ended_at_ns_ = now_ns();
  look_at_ns_ = std::min(look_at_ns_, lane_ended_at_ns_ + kMaxEndNs);
  transport_.set_timer();
}

}  // namespace gigabar::transport::tcp
