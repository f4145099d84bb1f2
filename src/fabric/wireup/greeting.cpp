// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/greeting.hpp"

#include <utility>

namespace gigabar::fabric::wireup {

Greeting::Greeting(const Identity& identity, Watched socket, bool is_unix, std::int64_t process, std::string where,
                   std::int64_t deadline_ns)
    : identity_(identity),
      handshake_(identity, Role::acceptor),
      socket_(std::move(socket)),
      is_unix_(is_unix),
      process_(process),
      where_(std::move(where)),
      deadline_ns_(deadline_ns) {}

Stranger Greeting::advance() { return has_said_hello_ ? hear_proof() : hear_hello(); }

Stranger Greeting::missing(Arrival arrival) const {
  if (arrival == Arrival::incomplete) return Stranger::going;
  // The initiator waits after its prefix too.
  const bool is_between = heard_.empty() || (!has_said_hello_ && heard_.size() == kPrefixBytes);
  return is_between ? Stranger::left : Stranger::malformed;
}

Stranger Greeting::hear_hello() {
  // The prefix alone tells a stranger, and the number of another version, whose hello may have another length.
  Arrival arrival = read_up_to(socket_.get(), heard_, kPrefixBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(heard_);
  if (!prefix || prefix->verdict != Verdict::proceed) return Stranger::malformed;
  if (prefix->version != identity_.version) {
    turn_away(Verdict::version);
    return Stranger::wrong_job;
  }
  arrival = read_up_to(socket_.get(), heard_, kHelloBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  switch (handshake_.take_hello(heard_)) {
    case HelloFault::none: break;
    case HelloFault::malformed: return Stranger::malformed;
    case HelloFault::version:
    case HelloFault::job:
    case HelloFault::rank: turn_away(Verdict::refused); return Stranger::wrong_job;
    case HelloFault::key: turn_away(Verdict::refused); return Stranger::wrong_key;
  }
  if (!send_now(socket_.get(), handshake_.hello(handshake_.peer()))) return Stranger::left;
  has_said_hello_ = true;
  heard_.clear();
  return hear_proof();
}

Stranger Greeting::hear_proof() {
  const Arrival arrival = read_up_to(socket_.get(), heard_, kProofBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(heard_);
  if (!prefix || prefix->version != identity_.version || prefix->verdict != Verdict::proceed) return Stranger::malformed;
  if (!handshake_.is_proven(heard_)) {
    turn_away(Verdict::refused);
    return Stranger::wrong_key;
  }
  return Stranger::proven;
}

bool Greeting::accept() {
  // It may have given up while it waited: then there is nobody to have a channel with.
  return !is_at_end(socket_.get()) && send_now(socket_.get(), handshake_.proof());
}

Established Greeting::take() { return {std::move(socket_), handshake_.session(), is_unix_, process_, std::move(where_)}; }

void Greeting::turn_away(Verdict verdict) {
  send_now(socket_.get(), encode(Prefix{identity_.version, verdict}));
  end_connection(socket_.get());
}

}  // namespace gigabar::fabric::wireup
