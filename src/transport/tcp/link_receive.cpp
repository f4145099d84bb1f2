// SPDX-License-Identifier: Apache-2.0
// A link's incoming half. Every byte here was written by another process.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"
#include "transport/tcp/link.hpp"

namespace gigabar::transport::tcp {

using secure::Moved;

namespace {

constexpr unsigned kMaxReceivesPerTurn = 8;
// Less is copied from the buffer that everything comes through, in the same system call as what follows it.
constexpr std::uint64_t kMinDirectBytes = 16384;
constexpr std::uint64_t kMaxBehindFenceBytes = 64U << 20;  // that are looked through: more than sockets hold

}  // namespace

// Where the next bytes go: host memory that data is meant for, and behind all of it the buffer.
std::array<iovec, 2> TcpLink::place_for_more(Scratch& scratch) {
  std::array<iovec, 2> pieces{};
  const std::uint64_t left_bytes = incoming_.left_bytes;
  std::byte* const memory = left_bytes >= kMinDirectBytes ? transport_.home()->memory(incoming_.to, left_bytes) : nullptr;
  if (memory != nullptr) pieces[0] = {memory, std::min<std::uint64_t>(left_bytes, call_bytes_.receive)};
  if (memory != nullptr && pieces[0].iov_len < left_bytes) return pieces;
  pieces[1] = {scratch.data() + carried_.size(), std::min(scratch.size() - carried_.size(), call_bytes_.receive)};
  return pieces;
}

void TcpLink::hear_end(const Moved& moved) {
  switch (moved.how) {
    case Moved::How::ended:
      // The kernel tells its reason once, to the call that came first.
      if (send_code_ && *send_code_ != EPIPE && *send_code_ != ECONNRESET) return lost_by("sending failed: ", *send_code_);
      return lost("its socket closed without a farewell: its process has ended", kConnectAnew);
    case Moved::How::failed: return lost_by("its socket broke: ", moved.code);
    case Moved::How::forged: return lost("what came is not authentic: something on the way changed it", kConnectAnew);
    case Moved::How::ok:
    case Moved::How::blocked: return;
  }
}

bool TcpLink::receive(Sink& sink) {
  if (state_ != LinkState::ready || fence_) return false;
  Scratch& scratch = transport_.scratch();
  for (unsigned turn = 0; turn < kMaxReceivesPerTurn && state_ == LinkState::ready; ++turn) {
    const std::array<iovec, 2> pieces = place_for_more(scratch);
    const std::size_t direct_bytes = pieces[0].iov_len;
    const std::span<const iovec> places(pieces);
    const Moved moved = stream_->receive(direct_bytes > 0 ? places : places.last(1));
    if (moved.how != Moved::How::ok) {
      hear_end(moved);
      return turn > 0 || state_ != LinkState::ready;
    }
    std::ranges::copy(carried_, scratch.begin());  // not for a poll that finds nothing
    const std::size_t taken = std::min(moved.bytes, direct_bytes);
    take_frames(taken, std::span(scratch).first(carried_.size() + moved.bytes - taken), sink);
    if (fence_) want_events();
    if (fence_ || state_ != LinkState::ready) return true;
    // The socket had no more: its descriptor tells when it has.
    if (security_.protection == Protection::authenticated && moved.bytes < direct_bytes + pieces[1].iov_len) return true;
  }
  is_hungry_ = true;
  transport_.attend_to(*this);
  return true;
}

// What is behind a fence, or the beginning of a header or message, is carried. `placed_bytes`: of data, that came before.
void TcpLink::take_frames(std::size_t placed_bytes, std::span<const std::byte> bytes, Sink& sink) {
  // With an exception what has come is lost: what comes next would be taken for it.
  Undo lose_what_came([&] { fail(Error::out_of_memory(), Farewell::own_failure); });
  if (placed_bytes > 0) placed(placed_bytes);
  while (state_ == LinkState::ready && !fence_ && !bytes.empty()) {
    if (incoming_.left_bytes > 0) {
      const std::size_t part = std::min<std::uint64_t>(incoming_.left_bytes, bytes.size());
      place(bytes.first(part));
      bytes = bytes.subspan(part);
      continue;
    }
    if (bytes.size() < kHead) break;
    const auto header = parse_header(bytes);
    if (!header) {
      refuse("what it sent is no frame");
      break;
    }
    const std::size_t message_bytes = header->kind == FrameKind::message ? header->data_bytes : 0;
    if (bytes.size() < kHead + message_bytes) break;
    const std::span<const std::byte> message = bytes.subspan(kHead, message_bytes);
    bytes = bytes.subspan(kHead + message_bytes);
    switch (header->kind) {
      case FrameKind::message: sink.message(*this, header->body, message); break;
      case FrameKind::write: begin_write(*header); break;
      case FrameKind::answer: begin_answer(*header); break;
      case FrameKind::read: take_read(*header); break;
      case FrameKind::fence: take_fence(*header); break;
      case FrameKind::bye: lost(std::string(sentence_of(static_cast<Farewell>(header->number)))); break;
    }
  }
  carried_ = std::vector<std::byte>(bytes.begin(), bytes.end());  // keeps no room where there is nothing
  lose_what_came.call_off();
}

void TcpLink::begin_write(const FrameHeader& header) {
  const Place to = place_of(header, rank_);
  if (!transport_.home()->is_allowed(to, header.data_bytes)) return refuse_write();
  incoming_ = {header, header.data_bytes, to};
}

void TcpLink::begin_answer(const FrameHeader& header) {
  const auto found = reads_.find(header.number);
  if (found == reads_.end()) return refuse("it answered what was not asked");
  Read& read = found->second;
  if (header.data_bytes > read.missing_bytes) return refuse("an answer was longer than what was asked for");
  incoming_ = {header, header.data_bytes, read.to};
  read.to.offset += header.data_bytes;  // they come in order
  read.missing_bytes -= header.data_bytes;
}

void TcpLink::take_read(const FrameHeader& header) {
  const Place from = place_of(header, rank_);
  const std::uint64_t bytes = access_of(header).bytes;
  if (!may_read(from, bytes, answers_.size())) return;
  answers_.push_back({first_piece(FrameKind::answer, static_cast<std::uint32_t>(header.request), {}, from, bytes), {}, 0});
  pump();
}

void TcpLink::place(std::span<const std::byte> data) {
  const Placed outcome = transport_.home()->copy_to(incoming_.to, data);
  if (outcome == Placed::ok) return placed(data.size());
  if (outcome == Placed::failed) return fail_to_place();
  if (incoming_.header.kind == FrameKind::write) return refuse("it writes to a region that was taken back", Farewell::bad_access);
  fail_as_taken_back("read");
}

void TcpLink::placed(std::uint64_t bytes) {
  incoming_.left_bytes -= bytes;
  incoming_.to.offset += bytes;
  if (incoming_.left_bytes > 0 || incoming_.header.kind == FrameKind::write) return;
  const auto found = reads_.find(incoming_.header.number);
  if (found->second.missing_bytes > 0) return;
  finish(found->second.cookie, {});
  reads_.erase(found);
}

// --- Fences, and what lanes tell ------------------------------------------------------------------------------------------------

// Afterwards there is a fence_ where shares are missing.
void TcpLink::take_fence(const FrameHeader& header) {
  const auto counts = std::bit_cast<ShareCounts>(header.body);
  if (std::any_of(counts.begin() + lane_count_, counts.end(), [](std::uint32_t count) { return count != 0; })) {
    return refuse("it counts large writes over connections that the link has not");
  }
  fence_ = counts;
  pass_fence();
}

// Whether all shares before it are in place. Either a lane sees that it is waited for, or its share is seen here.
bool TcpLink::pass_fence() noexcept {
  lane_counts_.is_waited_for.store(true, std::memory_order_seq_cst);
  for (std::size_t lane = 0; lane < fence_->size(); ++lane) {
    const std::uint32_t placed = lane_counts_.placed_shares[lane].load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(placed - (*fence_)[lane]) < 0) return false;
  }
  lane_counts_.is_waited_for.store(false, std::memory_order_relaxed);
  fence_.reset();
  return true;
}

bool TcpLink::leave_fence(Sink& sink) {
  if (!fence_ || state_ != LinkState::ready || !pass_fence()) return false;
  take_frames(0, std::exchange(carried_, {}), sink);
  if (!fence_) {
    is_hungry_ = true;
    transport_.attend_to(*this);
  }
  want_events();
  return true;
}

// Behind a fence that is not passed any more: a farewell is the last that a peer says. What is before that is of no use.
std::optional<Farewell> TcpLink::hear_farewell() {
  Scratch& scratch = transport_.scratch();
  const iovec place{scratch.data(), scratch.size()};
  std::vector<std::byte> last = std::exchange(carried_, {});
  for (std::uint64_t heard_bytes = 0; heard_bytes < kMaxBehindFenceBytes;) {
    const Moved moved = stream_->receive(std::span(&place, 1));
    if (moved.how != Moved::How::ok) break;
    heard_bytes += moved.bytes;
    last.insert(last.end(), scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(std::min(last.size(), kHead)));
  }
  if (last.size() < kHead) return {};
  const auto header = parse_header(std::span(last).last(kHead));
  return header && header->kind == FrameKind::bye ? std::optional(static_cast<Farewell>(header->number)) : std::nullopt;
}

void TcpLink::take_event(const LaneEvent& event) {
  if (state_ == LinkState::broken) return;
  switch (event.kind) {
    case LaneEvent::Kind::moved:
      std::erase_if(lane_writes_, [&](const LaneWrite& write) {
        if (!write.is_sent()) return false;
        finish(write.cookie, {});
        return true;
      });
      return transport_.attend_to(*this);
    case LaneEvent::Kind::not_allowed: return refuse_write();
    case LaneEvent::Kind::no_frame: return refuse("what it sent over a connection for large writes is none");
    case LaneEvent::Kind::failed: return fail_to_place();
    case LaneEvent::Kind::gone: return fail_as_taken_back("write");
    case LaneEvent::Kind::over:
      if (event.end.how != Moved::How::ended) return hear_end(event.end);
  }
  // The link's own connection brings what the peer said last. Where it stays as it is, this one was closed alone.
  if (end_at_ns_ != secure::kNever) return;
  end_at_ns_ = now_ns() + kMaxEndNs;
  transport_.set_timer();
}

}  // namespace gigabar::transport::tcp
