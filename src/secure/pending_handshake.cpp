// SPDX-License-Identifier: Apache-2.0
#include "secure/pending_handshake.hpp"

#include <utility>

namespace gigabar::secure {

PendingHandshake::PendingHandshake(const Identity& identity, Connection connection, std::int64_t deadline_ns)
    : identity_(identity), handshake_(identity, Role::acceptor), connection_(std::move(connection)), deadline_ns_(deadline_ns) {}

HandshakeResult PendingHandshake::advance() { return has_sent_hello_ ? read_proof() : read_hello(); }

HandshakeResult PendingHandshake::missing(Arrival arrival) const {
  if (arrival == Arrival::incomplete) return HandshakeResult::going;
  // The initiator waits after its prefix too.
  const bool is_between = received_.empty() || (!has_sent_hello_ && received_.size() == kPrefixBytes);
  return is_between ? HandshakeResult::left : HandshakeResult::malformed;
}

HandshakeResult PendingHandshake::read_hello() {
  // The prefix alone tells a stranger, and the number of another version, whose hello may have another length.
  Arrival arrival = read_up_to(socket(), received_, kPrefixBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(received_);
  if (!prefix || prefix->verdict != Verdict::proceed) return HandshakeResult::malformed;
  if (prefix->version != identity_.version) return reject(Verdict::version, HandshakeResult::wrong_job);
  arrival = read_up_to(socket(), received_, kHelloBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  switch (handshake_.take_hello(received_)) {
    case HelloFault::none: break;
    case HelloFault::malformed: return HandshakeResult::malformed;
    case HelloFault::version:
    case HelloFault::job:
    case HelloFault::rank: return reject(Verdict::refused, HandshakeResult::wrong_job);
    case HelloFault::key: return reject(Verdict::refused, HandshakeResult::wrong_key);
  }
  if (!send_now(socket(), handshake_.hello(handshake_.peer()))) return HandshakeResult::left;
  has_sent_hello_ = true;
  received_.clear();
  return read_proof();
}

HandshakeResult PendingHandshake::read_proof() {
  const Arrival arrival = read_up_to(socket(), received_, kProofBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(received_);
  if (!prefix || prefix->version != identity_.version || prefix->verdict != Verdict::proceed) return HandshakeResult::malformed;
  return handshake_.take_proof(received_) ? HandshakeResult::proven : reject(Verdict::refused, HandshakeResult::wrong_key);
}

bool PendingHandshake::answer(Verdict verdict) {
  // It may have given up while it waited: then there is nobody to have a channel with.
  const bool is_told = !is_at_end(socket()) && send_now(socket(), handshake_.proof(verdict));
  if (verdict != Verdict::proceed) end_connection(socket());
  return is_told;
}

Established PendingHandshake::take() {
  return {std::move(connection_), handshake_.take_sealer(), handshake_.take_opener(), handshake_.data_key(Role::acceptor),
          handshake_.data_key(Role::initiator)};
}

HandshakeResult PendingHandshake::reject(Verdict verdict, HandshakeResult why) {
  send_now(socket(), encode(Prefix{identity_.version, verdict}));
  end_connection(socket());
  return why;
}

}  // namespace gigabar::secure
