// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/door.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/undo.hpp"

namespace gigabar::transport::tcp {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kHandshakeNs = 5000 * kMillisecond;
constexpr std::size_t kMaxPending = 128;
// As of the ranks' channels: each has a moment to speak before it may have to make room.
constexpr std::int64_t kGraceBeforeHelloNs = 20 * kMillisecond;
constexpr std::int64_t kGraceAfterHelloNs = 250 * kMillisecond;
constexpr std::int64_t kCrowdPauseNs = 5 * kMillisecond;
constexpr std::int64_t kLackPauseNs = 100 * kMillisecond;  // no descriptor or memory for one that waits
constexpr int kMaxAcceptsPerTurn = 64;

}  // namespace

Door::Door(secure::Poller& poller) noexcept : poller_(poller), limit_(kMaxPending, kGraceBeforeHelloNs, kGraceAfterHelloNs) {}

Result<void> Door::listen(const Rail& rail) {
  std::vector<secure::SocketAddress> addresses;
  int code = 0;
  for (const secure::SocketAddress& address : rail.addresses) {
    Descriptor socket = secure::listen_at(address);
    if (!socket.is_open()) {
      code = errno;
      continue;
    }
    const std::uint16_t port = secure::port_of(secure::own_address_of(socket.get()));
    secure::Watched watched(poller_, std::move(socket), token_of(TokenKind::listener, listeners_.size()), EPOLLIN);
    if (!watched.is_open()) {
      code = errno;
      continue;
    }
    listeners_.push_back(std::move(watched));
    if (addresses.size() < kMaxTargets) addresses.push_back(secure::with_port(address, port));
  }
  if (addresses.empty()) {
    return make_error(status_of_errno(code, Status::unavailable), "open TCP", rail.interface,
                      text("nothing can listen at its addresses: ", std::strerror(code)), {}, errno_code(code));
  }
  addresses_.push_back(std::move(addresses));
  return {};
}

void Door::expect(std::uint64_t link, secure::Identity identity) { expected_.emplace(link, std::move(identity)); }

void Door::forget(std::uint64_t link) noexcept {
  // Their handshakes refer to the identity.
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const auto next = std::next(pending);
    if (pending->second.link == link) drop(pending);
    pending = next;
  }
  expected_.erase(link);
}

void Door::drop(AllPending::iterator pending) {
  limit_.remove(pending->first);
  pending_.erase(pending);
}

void Door::refuse(AllPending::iterator pending, const char* why) {
  ++refused_count_;
  // Not a line each: who scans ports must not fill the log.
  if (is_logged(LogLevel::info) && std::has_single_bit(refused_count_)) {
    const Pending& one = pending->second;
    log(LogLevel::info, text("tcp: turned away ", one.handshake ? one.handshake->where() : one.connection.where, ": ", why, " (",
                             refused_count_, " so far)"));
  }
  drop(pending);
}

// False: the one that would have to go has not had its moment yet.
bool Door::make_room(std::int64_t now_ns) {
  if (!limit_.is_full()) return true;
  const auto weakest = limit_.weakest(now_ns);
  if (weakest) refuse(pending_.find(*weakest), "too many unfinished handshakes");
  return weakest.has_value();
}

void Door::accept(std::uint64_t listener, std::int64_t now_ns) {
  const auto pause = [&](std::int64_t pause_ns) {
    for (secure::Watched& one : listeners_) one.want(0);
    accept_again_at_ns_ = now_ns + pause_ns;
  };
  const int descriptor = listeners_[listener].get();
  for (int turn = 0; turn < kMaxAcceptsPerTurn && secure::is_readable(descriptor); ++turn) {
    if (!make_room(now_ns)) return pause(kCrowdPauseNs);
    secure::SocketAddress from;
    from.bytes = sizeof from.storage;
    Descriptor socket(::accept4(descriptor, reinterpret_cast<sockaddr*>(&from.storage), &from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      begin(std::move(socket), from, now_ns);
    } else if (secure::lacks_resources(errno)) {
      return pause(kLackPauseNs);
    }
  }
}

void Door::begin(Descriptor socket, const secure::SocketAddress& from, std::int64_t now_ns) {
  secure::set_tcp_options(socket.get());
  const std::uint64_t serial = ++serial_;
  const auto pending = pending_.try_emplace(serial).first;
  Undo forget([&] { refuse(pending, "there is no memory for it"); });
  limit_.add(serial, secure::source_of(from.storage), now_ns);
  Pending& one = pending->second;
  one.deadline_ns = now_ns + kHandshakeNs;
  one.connection = {{}, false, 0, secure::name_of_address(from)};
  one.connection.socket = secure::Watched(poller_, std::move(socket), token_of(TokenKind::guest, serial), EPOLLIN | EPOLLRDHUP);
  if (one.connection.socket.is_open()) forget.call_off();
}

// True: it has named a link that waits for it, and a handshake has begun.
bool Door::read_preamble(Pending& pending) {
  pending.link = ByteReader(pending.preamble).number<std::uint64_t>();
  const auto expected = expected_.find(pending.link);
  if (expected == expected_.end()) return false;
  pending.handshake.emplace(expected->second, std::move(pending.connection), pending.deadline_ns);
  return pending.handshake->begin();
}

std::optional<Guest> Door::advance(std::uint64_t serial) {
  const auto found = pending_.find(serial);
  if (found == pending_.end()) return {};
  Pending& pending = found->second;
  Undo turn_away([&] { refuse(found, "there is no memory for it"); });
  if (!pending.handshake) {
    const secure::Arrival arrival = secure::read_up_to(pending.connection.socket.get(), pending.preamble, kPreambleBytes);
    if (arrival == secure::Arrival::incomplete) return turn_away.call_off(), std::nullopt;
    const bool is_named = arrival == secure::Arrival::complete;
    if (!is_named || !read_preamble(pending)) {
      turn_away.call_off();
      refuse(found, is_named ? "it names no link that waits" : "it named no link");
      return {};
    }
  }
  const secure::HandshakeResult result = pending.handshake->advance();
  if (pending.handshake->has_sent_hello()) limit_.note_hello(serial);
  turn_away.call_off();
  if (result == secure::HandshakeResult::going) return {};
  const std::uint64_t link = pending.link;
  // A link has one connection: the first that proves its key.
  if (result != secure::HandshakeResult::proven || !pending.handshake->answer(secure::Verdict::proceed)) {
    refuse(found, "it did not prove the key of its link");
    return {};
  }
  Guest guest{link, pending.handshake->take()};
  drop(found);
  forget(link);
  return guest;
}

void Door::run_timers(std::int64_t now_ns) {
  while (!pending_.empty() && pending_.begin()->second.deadline_ns <= now_ns) {
    refuse(pending_.begin(), "it did not finish the handshake in time");
  }
  if (accept_again_at_ns_ > now_ns) return;
  accept_again_at_ns_ = secure::kNever;
  for (secure::Watched& listener : listeners_) listener.want(EPOLLIN);
}

std::int64_t Door::next_ns() const noexcept {
  return pending_.empty() ? accept_again_at_ns_ : std::min(accept_again_at_ns_, pending_.begin()->second.deadline_ns);
}

}  // namespace gigabar::transport::tcp
