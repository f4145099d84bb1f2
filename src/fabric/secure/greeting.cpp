// SPDX-License-Identifier: Apache-2.0
#include "fabric/secure/greeting.hpp"

#include <utility>

namespace gigabar::fabric::secure {

Greeting::Greeting(const Identity& identity, Connection connection, std::int64_t deadline_ns)
    : identity_(identity), handshake_(identity, Role::acceptor), connection_(std::move(connection)), deadline_ns_(deadline_ns) {}

Stranger Greeting::advance() { return has_said_hello_ ? hear_proof() : hear_hello(); }

Stranger Greeting::missing(Arrival arrival) const {
  if (arrival == Arrival::incomplete) return Stranger::going;
  // The initiator waits after its prefix too.
  const bool is_between = heard_.empty() || (!has_said_hello_ && heard_.size() == kPrefixBytes);
  return is_between ? Stranger::left : Stranger::malformed;
}

Stranger Greeting::hear_hello() {
  // The prefix alone tells a stranger, and the number of another version, whose hello may have another length.
  Arrival arrival = read_up_to(socket(), heard_, kPrefixBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(heard_);
  if (!prefix || prefix->verdict != Verdict::proceed) return Stranger::malformed;
  if (prefix->version != identity_.version) return turn_away(Verdict::version, Stranger::wrong_job);
  arrival = read_up_to(socket(), heard_, kHelloBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  switch (handshake_.take_hello(heard_)) {
    case HelloFault::none: break;
    case HelloFault::malformed: return Stranger::malformed;
    case HelloFault::version:
    case HelloFault::job:
    case HelloFault::rank: return turn_away(Verdict::refused, Stranger::wrong_job);
    case HelloFault::key: return turn_away(Verdict::refused, Stranger::wrong_key);
  }
  if (!send_now(socket(), handshake_.hello(handshake_.peer()))) return Stranger::left;
  has_said_hello_ = true;
  heard_.clear();
  return hear_proof();
}

Stranger Greeting::hear_proof() {
  const Arrival arrival = read_up_to(socket(), heard_, kProofBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(heard_);
  if (!prefix || prefix->version != identity_.version || prefix->verdict != Verdict::proceed) return Stranger::malformed;
  return handshake_.take_proof(heard_) ? Stranger::proven : turn_away(Verdict::refused, Stranger::wrong_key);
}

bool Greeting::answer(Verdict verdict) {
  // It may have given up while it waited: then there is nobody to have a channel with.
  const bool is_told = !is_at_end(socket()) && send_now(socket(), handshake_.proof(verdict));
  if (verdict != Verdict::proceed) end_connection(socket());
  return is_told;
}

Established Greeting::take() { return {std::move(connection_), handshake_.take_sealer(), handshake_.take_opener()}; }

Stranger Greeting::turn_away(Verdict verdict, Stranger why) {
  send_now(socket(), encode(Prefix{identity_.version, verdict}));
  end_connection(socket());
  return why;
}

}  // namespace gigabar::fabric::secure
