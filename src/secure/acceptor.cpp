// SPDX-License-Identifier: Apache-2.0
#include "secure/acceptor.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/bytes.hpp"
#include "base/undo.hpp"
#include "secure/accept.hpp"
#include "secure/endpoint.hpp"

namespace gigabar::secure {
namespace {

constexpr Limits kLimits{};  // as of an Endpoint's strangers

}  // namespace

std::string preamble_of(std::uint64_t number) { return ByteWriter().number(number).take(); }

Acceptor::Acceptor(Poller& poller) noexcept
    : poller_(poller), limit_(kLimits.max_pending_handshakes, kLimits.grace_before_hello_ns, kLimits.grace_after_hello_ns) {}

std::vector<SocketAddress> Acceptor::listen(std::span<const SocketAddress> addresses) {
  std::vector<SocketAddress> listening;
  int code = 0;
  for (const SocketAddress& address : addresses) {
    Descriptor socket = listen_at(address);
    if (!socket.is_open()) {
      code = errno;
      continue;
    }
    const std::uint16_t port = port_of(own_address_of(socket.get()));
    Watched watched(poller_, std::move(socket), listeners_.size(), EPOLLIN);
    if (!watched.is_open()) {
      code = errno;
      continue;
    }
    listeners_.push_back(std::move(watched));
    listening.push_back(with_port(address, port));
  }
  errno = code;
  return listening;
}

void Acceptor::expect(std::uint64_t number, Identity identity) { expected_.emplace(number, std::move(identity)); }

void Acceptor::forget(std::uint64_t number) noexcept {
  // Their handshakes refer to the identity.
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const auto next = std::next(pending);
    if (pending->second.number == number) drop(pending);
    pending = next;
  }
  expected_.erase(number);
}

void Acceptor::drop(AllPending::iterator pending) {
  limit_.remove(pending->first);
  pending_.erase(pending);
}

void Acceptor::refuse(AllPending::iterator pending, const char* why) {
  const Pending& one = pending->second;
  log_refusal(one.handshake ? one.handshake->where() : one.connection.where, why, ++refused_count_);
  drop(pending);
}

void Acceptor::accept(const Watched& listener, std::int64_t now_ns) {
  const std::int64_t pause_ns = accept_waiting(listener.get(), limit_, now_ns, [&](Descriptor socket, const SocketAddress& from) {
    begin(std::move(socket), from, now_ns);
  });
  if (pause_ns == 0) return;
  for (Watched& one : listeners_) one.want(0);
  accept_again_at_ns_ = now_ns + pause_ns;
}

// The limit is not crowded.
void Acceptor::make_room(std::int64_t now_ns) {
  if (!limit_.is_full()) return;
  if (const auto weakest = limit_.weakest(now_ns)) refuse(pending_.find(*weakest), "too many unfinished handshakes");
}

void Acceptor::begin(Descriptor socket, const SocketAddress& from, std::int64_t now_ns) {
  make_room(now_ns);
  set_tcp_options(socket.get());
  const std::uint64_t serial = ++serial_;
  const auto pending = pending_.try_emplace(serial).first;
  Undo forget([&] { refuse(pending, "there is no memory for it"); });
  limit_.add(serial, source_of(from), now_ns);
  Pending& one = pending->second;
  one.deadline_ns = now_ns + kLimits.handshake_ns;
  one.connection = {{}, false, 0, name_of_address(from)};
  one.connection.socket = Watched(poller_, std::move(socket), serial, EPOLLIN | EPOLLRDHUP);
  if (one.connection.socket.is_open()) forget.call_off();
}

// True: it has named a connection that is expected, and a handshake has begun.
bool Acceptor::read_preamble(Pending& pending) {
  pending.number = ByteReader(pending.preamble).number<std::uint64_t>();
  const auto expected = expected_.find(pending.number);
  if (expected == expected_.end()) return false;
  pending.handshake.emplace(expected->second, std::move(pending.connection), pending.deadline_ns);
  return pending.handshake->begin();
}

std::optional<ProvenConnection> Acceptor::handle(std::uint64_t token, std::int64_t now_ns) {
  if (token < listeners_.size()) return accept(listeners_[token], now_ns), std::nullopt;
  const auto pending = pending_.find(token);
  return pending == pending_.end() ? std::nullopt : advance(pending);
}

std::optional<ProvenConnection> Acceptor::advance(AllPending::iterator found) {
  Pending& pending = found->second;
  Undo turn_away([&] { refuse(found, "there is no memory for it"); });
  if (!pending.handshake) {
    const Arrival arrival = read_up_to(pending.connection.socket.get(), pending.preamble, kPreambleBytes);
    if (arrival == Arrival::incomplete) return turn_away.call_off(), std::nullopt;
    const bool is_named = arrival == Arrival::complete;
    if (!is_named || !read_preamble(pending)) {
      turn_away.call_off();
      refuse(found, is_named ? "it names no connection that is expected" : "it named no connection");
      return {};
    }
  }
  const HandshakeResult result = pending.handshake->advance();
  if (pending.handshake->has_sent_hello()) limit_.note_hello(found->first);
  turn_away.call_off();
  if (result == HandshakeResult::going) return {};
  // The first that proves the key has the number.
  if (result != HandshakeResult::proven || !pending.handshake->answer(Verdict::proceed)) {
    refuse(found, "it did not prove the key of its connection");
    return {};
  }
  ProvenConnection proven{pending.number, pending.handshake->take()};
  drop(found);
  forget(proven.number);
  return proven;
}

void Acceptor::run_timers(std::int64_t now_ns) {
  while (!pending_.empty() && pending_.begin()->second.deadline_ns <= now_ns) {
    refuse(pending_.begin(), "it did not finish the handshake in time");
  }
  if (accept_again_at_ns_ > now_ns) return;
  accept_again_at_ns_ = kNever;
  for (Watched& listener : listeners_) listener.want(EPOLLIN);
}

std::int64_t Acceptor::next_ns() const noexcept {
  return pending_.empty() ? accept_again_at_ns_ : std::min(accept_again_at_ns_, pending_.begin()->second.deadline_ns);
}

}  // namespace gigabar::secure
