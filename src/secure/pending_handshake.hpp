// SPDX-License-Identifier: Apache-2.0
// Somebody who connected to this rank and has yet to prove who it is.
#pragma once

#include <cstdint>
#include <string>

#include "secure/channel.hpp"
#include "secure/handshake.hpp"
#include "secure/poller.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

enum class HandshakeResult : std::uint8_t {
  going,      // not finished
  proven,     // it holds the key: answer()
  left,       // it closed between two messages: nothing wrong
  malformed,  // the others: why it was turned away
  wrong_job,
  wrong_key,
  out_of_memory
};

class PendingHandshake {
 public:
  PendingHandshake(const Identity& identity, Connection connection, std::int64_t deadline_ns);

  std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
  // It has shown the key for this connection.
  bool has_sent_hello() const noexcept { return has_sent_hello_; }
  bool is_unix() const noexcept { return connection_.is_unix; }
  const std::string& where() const noexcept { return connection_.where; }

  // Sends the challenge. False: the connection is of no use.
  bool begin() { return send_now(socket(), handshake_.challenge()); }
  // Reads what is there and answers it.
  HandshakeResult advance();
  // Only when proven: the rank at the other end.
  Rank peer() const noexcept { return handshake_.peer(); }
  Rank peer_rank_count() const noexcept { return handshake_.peer_rank_count(); }
  // Only when proven: tells it so, and the verdict. False: it has gone meanwhile.
  bool answer(Verdict verdict);
  // The channel's part, after answer(Verdict::proceed).
  Established take();

 private:
  HandshakeResult read_hello();
  HandshakeResult read_proof();
  HandshakeResult missing(Arrival arrival) const;
  // To a stranger: nothing that was made with the key.
  HandshakeResult reject(Verdict verdict, HandshakeResult why);
  int socket() const noexcept { return connection_.socket.get(); }

  const Identity& identity_;
  Handshake handshake_;
  Connection connection_;
  std::int64_t deadline_ns_;
  bool has_sent_hello_ = false;
  std::string received_;  // of the message that comes now
};

}  // namespace gigabar::secure
