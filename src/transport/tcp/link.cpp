// SPDX-License-Identifier: Apache-2.0
// A link's outgoing half, its beginning and its end.
#include "transport/tcp/link.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"

namespace gigabar::transport::tcp {

using secure::Moved;

namespace {

constexpr unsigned kMaxSendsPerTurn = 16;            // so that others get their turn where the socket takes all at once
constexpr std::uint64_t kMaxQueuedUnits = 2U << 20;  // of messages that wait for the socket
constexpr std::uint64_t kMinShareBytes = 32U << 10;
constexpr std::uint64_t kShareAlignment = 4U << 10;  // copies go page by page

}  // namespace

// BBR keeps about as much under way as the path took when it was idle. Where the two ends are near that is little, and a call that
// copies much keeps acknowledgements waiting for longer than all of it lasts: 1 MiB at a time between two network namespaces of one
// host with two processors, 2.1 GB/s with whole pieces, 3.2 to 4 with 32 KiB in both directions, 5.3 as here; ucx 4.0. Without BBR
// whole pieces are three times as fast as 32 KiB.
TcpLink::CallBytes TcpLink::call_bytes_of(int socket) noexcept {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t bytes = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return {};
  const bool is_paced = std::string_view(name.data(), ::strnlen(name.data(), name.size())).starts_with("bbr");
  return is_paced ? CallBytes{std::size_t{512} << 10, std::size_t{64} << 10} : CallBytes{};
}

TcpLink::TcpLink(TcpTransport& transport, Rank rank, std::uint64_t number, const Security& security)
    : PlacedLink(transport, rank, kMaxPayloadBytes, "tcp"), transport_(transport), number_(number), security_(security) {
  // Last: where the rest throws there is no destructor that takes it out again.
  serial_ = transport_.add_link(*this);
}

TcpLink::~TcpLink() {
  if (transport_.is_of_this_process()) {
    if (state_ == LinkState::ready) quietly([&] { leave(); });
    close_connections(false);
  }
  transport_.remove_link(serial_);
}

// What was posted before goes out. This thread sends what is queued here, as the memory may go after the link; the transport and
// the kernel do the rest.
void TcpLink::leave() {
  put_fence();
  if (!send_in_time()) return;
  post_small(make_header(FrameKind::bye, static_cast<std::uint32_t>(Farewell::closed), 0));
  if (send_in_time()) close_connections(true);
}

// False: not everything is in the kernel within the time that there is.
bool TcpLink::send_in_time() {
  pump();
  const std::int64_t until_ns = has_sent_all() ? 0 : transport_.linger_until_ns();
  while (!has_sent_all() && can_post() && now_ns() < until_ns) {
    pollfd socket{stream_->socket().get(), static_cast<short>(is_idle() ? POLLRDHUP : POLLOUT | POLLRDHUP), 0};
    ::poll(&socket, 1, is_idle() ? 1 : 10);
    if ((socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return false;  // nobody is there to receive it
    pump();
  }
  return has_sent_all() && can_post();
}

// Of those that are being made the others are not expected any more.
void TcpLink::keep_ways(std::size_t count) noexcept {
  for (; ways_.size() > count; ways_.pop_back()) {
    const std::uint64_t last = number_ + ways_.size() - 1;
    if (waits_for(last)) transport_.acceptor().forget(last);  // the numbers of one that dials are the peer's
  }
}

// `lets_go_out`: what they have taken; else what has not gone out does not. Throws std::bad_alloc only then.
void TcpLink::close_connections(bool lets_go_out) {
  keep_ways(0);
  const auto close = [&](secure::ByteStream& stream) {
    if (lets_go_out) return transport_.let_go_out(std::move(stream));
    secure::end_connection(stream.socket().get());
  };
  for (unsigned lane = 0; lane < lane_count_; ++lane) {
    if (auto stream = transport_.lane(lane).remove(serial_)) close(*stream);
  }
  if (stream_) close(*stream_);
  stream_.reset();
}

std::uint64_t TcpLink::memory_bytes() const noexcept {
  const std::size_t of_lanes = security_.protection == Protection::sealed ? std::size_t{2} * lane_count_ * secure::kRecordBytes : 0;
  return sizeof *this + queued_units_ + carried_.capacity() + of_lanes + (stream_ ? stream_->memory_bytes() : 0);
}

// --- Connecting ------------------------------------------------------------------------------------------------------------------

Offer TcpLink::expect_peer(std::vector<network::SocketAddress> targets) {
  Offer offer{number_, secure::Secret::of_size(kSecretBytes), std::move(targets), transport_.lane_count()};
  randombytes_buf(offer.secret.data(), kSecretBytes);
  ways_ = std::deque<Way>(1 + offer.lanes);
  for (std::uint64_t number = number_; number - number_ < ways_.size(); ++number) {
    transport_.acceptor().expect(number, identity_of(offer.secret, number, security_, secure::Role::acceptor));
  }
  transport_.set_timer();
  return offer;
}

unsigned TcpLink::dial(const Offer& offer) {
  is_completed_ = true;
  const unsigned lanes = std::min(offer.lanes, transport_.lane_count());
  ways_ = std::deque<Way>(1 + lanes);
  for (std::size_t index = 0; index < ways_.size(); ++index) {
    Way& way = ways_[index];
    const std::uint64_t number = number_ + index;
    way.identity = identity_of(offer.secret, number, security_, secure::Role::initiator);
    way.dial.emplace(way.identity, transport_.poller(), kLinkTokens + serial_, Rank{0}, offer.targets, connect_until_ns_,
                     std::nullopt);
    way.dial->set_link(secure::preamble_of(number), rank_);
  }
  advance(now_ns());
  transport_.set_timer();
  return lanes;
}

std::int64_t TcpLink::next_ns() const noexcept {
  if (state_ == LinkState::ready) return std::min(look_at_ns_, end_at_ns_);
  if (state_ != LinkState::connecting) return secure::kNever;
  std::int64_t next_ns = connect_until_ns_;
  for (const Way& way : ways_) {
    if (way.dial) next_ns = std::min(next_ns, way.dial->next_ns());
  }
  return next_ns;
}

void TcpLink::advance(std::int64_t now_ns) {
  if (state_ == LinkState::ready) return look_for_silence(now_ns);
  for (std::size_t index = 0; index < ways_.size() && state_ == LinkState::connecting; ++index) {
    std::optional<secure::Dial>& dial = ways_[index].dial;
    const auto progress = dial ? dial->advance(now_ns) : secure::Dial::Progress::going;
    if (progress == secure::Dial::Progress::connected) take(number_ + index, dial->take());
    if (progress == secure::Dial::Progress::failed) fail(about_this(dial->error()));
  }
  if (state_ != LinkState::connecting || now_ns < connect_until_ns_) return;
  fail_to_connect("no connection stands within the deadline",
                  "look for a firewall between the hosts, and at GIGABAR_TCP_INTERFACES");
}

void TcpLink::take(std::uint64_t number, secure::Established established) {
  if (state_ != LinkState::connecting) return;
  if (number == number_) rail_ = transport_.rail_of(secure::own_address_of(established.connection.socket.get()));
  // Until the peer's answer has come no event matters; EPOLLERR would come again and again.
  established.connection.socket.rename(kLinkTokens + serial_, EPOLLONESHOT);
  // A rank that computes or is stopped may not read for long; look_for_silence() notices when its host does not answer.
  secure::allow_slow_reader(established.connection.socket.get());
  Way& way = ways_[number - number_];
  way.stream.emplace(std::move(established), security_.protection, security_.cipher);
  way.dial.reset();
  look_whether_ready();
}

Result<void> TcpLink::complete(Parcel answer) {
  if (state_ != LinkState::connecting || is_completed_) {
    return make_error(Status::invalid_argument, "complete a link", object(), "it was completed before, or it broke");
  }
  const auto lanes = decode_answer(answer.bytes, number_, static_cast<unsigned>(ways_.size() - 1));
  if (!answer.descriptors.empty() || !lanes) {
    const Error error = make_error(Status::bad_file, "complete a link", object(), "the peer's answer is malformed",
                                   "use the same version of Gigabar at every rank");
    fail(error);
    return error;
  }
  is_completed_ = true;
  keep_ways(*lanes + 1);
  look_whether_ready();
  transport_.set_timer();
  return {};
}

void TcpLink::look_whether_ready() {
  if (!is_completed_ || !std::ranges::all_of(ways_, [](const Way& way) { return way.stream.has_value(); })) return;
  lane_count_ = static_cast<unsigned>(ways_.size() - 1);
  rail_ = text(rail_, lane_count_ > 0 ? text(" x", lane_count_) : std::string(), ", ", name_of(security_.protection));
  for (const Way& way : ways_) sockets_.push_back({way.stream->socket().get(), {}});
  stream_ = std::move(ways_[0].stream);
  call_bytes_ = call_bytes_of(stream_->socket().get());
  call_bytes_.send = std::min(call_bytes_.send, stream_->part_bytes());
  for (unsigned lane = 0; lane < lane_count_; ++lane) {
    if (!transport_.lane(lane).add(serial_, rank_, std::move(*ways_[lane + 1].stream), lane_counts_)) {
      const int code = errno;
      return fail(make_error(status_of_errno(code), "connect", object(), "epoll_ctl failed", {}, errno_code(code)));
    }
  }
  ways_.clear();
  if (lane_count_ > 0) limits_.quick_read_bytes = kLaneBytes - 1;  // answers to reads take no lanes
  become_ready();
  look_at_ns_ = Silence::next_look_ns(now_ns(), transport_.connect_deadline_ns());
  want_events();
}

// --- Posting ---------------------------------------------------------------------------------------------------------------------

Posted TcpLink::send_message(const Header& header, std::span<const std::byte> payload) {
  if (queued_units_ + units_of(payload.size()) > kMaxQueuedUnits) return Posted::full;
  put_fence();
  if (send_code_) return Posted::full;
  FrameHeader frame = make_header(FrameKind::message, 0, payload.size());
  frame.body = header;
  post_small(frame, payload);
  return Posted::ok;
}

// All but writes and answers.
void TcpLink::post_small(const FrameHeader& header, std::span<const std::byte> data) {
  Outgoing item{{.header = header, .from = {}}, {}, 0};
  if (is_idle()) note_failure(item.send(*stream_, data.data(), data.size()));
  const bool is_begun = item.sent_bytes > 0;
  if (!item.is_sent() && !send_code_) {
    try {
      item.copy.assign(data.begin(), data.end());
      own_.push_back(std::move(item));
    } catch (const std::bad_alloc&) {
      if (is_begun) fail(Error::out_of_memory());  // half a frame is gone
      throw;
    }
    if (own_.back().header.kind == FrameKind::message) queued_units_ += units_of(data.size());
    if (is_begun) is_answers_turn_ = false;
  }
  want_events();
}

void TcpLink::begin(Direction direction, const Place& here, const RegionKey& there, const Transfer& transfer) {
  if (direction == Direction::write) {
    const Access to{there.guard, transfer.remote_offset, 0};
    if (lane_count_ > 0 && transfer.bytes >= kLaneBytes) return begin_by_lanes(here, there.region, to, transfer);
    own_.push_back({first_piece(FrameKind::write, there.region, to, here, transfer.bytes), {}, transfer.cookie});
    ++transfers_;
    return pump();
  }
  FrameHeader header = make_header(FrameKind::read, there.region, 0, {there.guard, transfer.remote_offset, transfer.bytes});
  const std::uint32_t number = add_read(here, transfer);
  header.request = number;
  Undo forget([&] { reads_.erase(number); });
  post_small(header);
  forget.call_off();
  ++transfers_;
  if (!is_idle()) pump();
}

void TcpLink::begin_by_lanes(Place from, std::uint32_t region, Access to, const Transfer& transfer) {
  const std::uint64_t even = (transfer.bytes / lane_count_ + kShareAlignment) / kShareAlignment * kShareAlignment;
  const std::uint64_t share_bytes = std::max(even, kMinShareBytes);
  // One after the other they take the same lanes, whose threads are awake.
  if (lane_writes_.empty()) next_lane_ = 0;
  LaneWrite& write = lane_writes_.emplace_back();
  write.cookie = transfer.cookie;
  write.missing_shares = static_cast<unsigned>((transfer.bytes + share_bytes - 1) / share_bytes);
  ++transfers_;
  is_fence_due_ = true;
  // A write of few shares goes where the last one ended.
  for (std::uint64_t left = transfer.bytes, part = 0; left > 0; left -= part) {
    part = std::min(share_bytes, left);
    const unsigned lane = std::exchange(next_lane_, (next_lane_ + 1) % lane_count_);
    try {
      transport_.lane(lane).send(serial_, {first_piece(FrameKind::write, region, to, from, part), &write});
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
  header.body = std::bit_cast<Header>(sent_shares_);
  post_small(header);
  is_fence_due_ = false;
}

bool TcpLink::has_sent_all() const noexcept { return is_idle() && std::ranges::all_of(lane_writes_, &LaneWrite::is_sent); }

// --- Sending ---------------------------------------------------------------------------------------------------------------------

void TcpLink::pump() {
  note_failure(stream_->flush());
  for (unsigned turn = 0; turn < kMaxSendsPerTurn && can_post(); ++turn) {
    if (own_.empty() && answers_.empty()) break;
    if (sending().empty()) is_answers_turn_ = !is_answers_turn_;
    std::deque<Outgoing>& queue = sending();
    Outgoing& item = queue.front();
    const std::byte* data = item.copy.data();
    if (item.bytes > 0) data = memory_to_send(item.from, item.header.data_bytes, item.header.kind == FrameKind::answer);
    if (item.bytes > 0 && data == nullptr) break;
    for (Moved moved; !item.is_sent() && moved.how == Moved::How::ok;) {
      moved = item.send(*stream_, data + item.data_sent(), call_bytes_.send);
      note_failure(moved);
    }
    if (!item.is_sent()) break;
    is_answers_turn_ = !is_answers_turn_;
    if (item.advance()) continue;
    if (item.header.kind == FrameKind::write) finish(item.cookie, {});
    if (item.header.kind == FrameKind::message) queued_units_ -= units_of(item.copy.size());
    queue.pop_front();
  }
  want_events();
}

bool TcpLink::want_events() noexcept {
  if (state_ != LinkState::ready) return true;
  const bool is_waiting = !is_idle() && !send_code_;
  const std::uint32_t incoming = transport_.is_asked_first(*this) || fence_ ? 0U : EPOLLIN | EPOLLRDHUP;
  // At a fence nothing is received, and the end of the connection would be told again and again.
  return stream_->socket().want(is_waiting ? incoming | EPOLLOUT : fence_ ? EPOLLONESHOT : incoming);
}

// What the peer sent before it went is told first.
void TcpLink::note_failure(const Moved& moved) noexcept {
  if (moved.how != Moved::How::failed) return;
  send_code_ = moved.code;
  transport_.attend_to(*this);
}

// --- Breaking --------------------------------------------------------------------------------------------------------------------

void TcpLink::lost_by(std::string_view what, int code) { lost(text(what, std::strerror(code)), kConnectAnew, errno_code(code)); }

// A farewell goes between two frames only; where it does not go out the peer sees the connection end.
void TcpLink::begin_to_break(std::optional<Farewell> farewell) noexcept {
  const bool is_within_frame = !sending().empty() && sending().front().sent_bytes > 0;
  if (!can_post() || !farewell || is_within_frame || stream_->has_unsent()) return;
  OutgoingFrame bye{.header = make_header(FrameKind::bye, static_cast<std::uint32_t>(*farewell), 0), .from = {}};
  quietly([&] { note_failure(bye.send(*stream_, nullptr, 0)); });
}

void TcpLink::look_for_silence(std::int64_t now_ns) {
  const std::int64_t limit_ns = transport_.connect_deadline_ns();
  look_at_ns_ = Silence::next_look_ns(now_ns, limit_ns);
  if (end_at_ns_ != secure::kNever) {
    // What has come is told first; at a fence nothing is received any more.
    int unread_bytes = 0;
    const bool has_unread = is_hungry_ || (::ioctl(stream_->socket().get(), SIOCINQ, &unread_bytes) == 0 && unread_bytes > 0);
    if (!fence_ && has_unread) end_at_ns_ = now_ns + kMaxEndNs;
    if (now_ns >= end_at_ns_) {
      const auto farewell = fence_ ? hear_farewell() : std::nullopt;
      return lost(farewell ? std::string(sentence_of(*farewell)) : "the peer's end of a connection for large writes closed");
    }
  }
  for (Socket& socket : sockets_) {
    const auto path = path_of(socket.descriptor);
    if (!path || !socket.silence.is_broken(*path, now_ns, limit_ns)) continue;
    return lost(
        text("the peer's host has acknowledged nothing for ", path->silent_ns / 1'000'000, " ms, although it was asked again"),
        "see that the host runs, and look at the links and cables between");
  }
}

bool TcpLink::attend(Sink& sink) {
  bool is_something = state_ == LinkState::ready && tell_ready(sink);
  is_something |= tell_dones(sink);
  is_something |= leave_fence(sink);
  const bool was_hungry = std::exchange(is_hungry_, false);
  if (send_code_ || was_hungry) is_something |= receive(sink);
  if (state_ == LinkState::ready && send_code_ && !is_hungry_ && !fence_) lost_by("sending failed: ", *send_code_);
  if (!error_) return is_something;
  close_connections(false);
  answers_.clear();
  for (; !own_.empty(); own_.pop_front()) {
    if (own_.front().header.kind == FrameKind::write) give_up(own_.front().cookie);
  }
  for (; !lane_writes_.empty(); lane_writes_.pop_front()) give_up(lane_writes_.front().cookie);
  tell_end(sink);
  return true;
}

void TcpLink::handle(std::uint32_t events, Sink& sink) {
  if (state_ != LinkState::ready) return advance(now_ns());
  if ((events & EPOLLOUT) != 0) pump();
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return;
  transport_.note_speaker(*this);
  receive(sink);
}

}  // namespace gigabar::transport::tcp
