// SPDX-License-Identifier: Apache-2.0
// Somebody who connected to this rank and has yet to prove who it is.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/wireup/channel.hpp"
#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/poller.hpp"
#include "fabric/wireup/sockets.hpp"

namespace gigabar::fabric::wireup {

enum class Stranger : std::uint8_t {
  going,      // not finished
  proven,     // it holds the key: accept() or turn_away()
  left,       // it closed between two messages: nothing wrong
  malformed,  // the others: why it was turned away
  wrong_job,
  wrong_key
};

class Greeting {
 public:
  Greeting(const Identity& identity, Watched socket, bool is_unix, std::int64_t process, std::string where,
           std::int64_t deadline_ns);

  std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
  // It has shown the key for this connection.
  bool has_said_hello() const noexcept { return has_said_hello_; }
  bool is_unix() const noexcept { return is_unix_; }
  const std::string& where() const noexcept { return where_; }

  // Sends the challenge. False: the connection is of no use.
  bool begin() { return send_now(socket_.get(), handshake_.challenge()); }
  // Reads what is there and answers it.
  Stranger advance();
  // Only when proven, and before accept(): the rank at the other end.
  Rank peer() const noexcept { return handshake_.peer(); }
  // Only when proven. False: it has gone meanwhile.
  bool accept();
  // The channel's part, after accept().
  Established take();
  void turn_away(Verdict verdict);

 private:
  Stranger hear_hello();
  Stranger hear_proof();
  Stranger missing(Arrival arrival) const;

  const Identity& identity_;
  Handshake handshake_;
  Watched socket_;
  bool is_unix_;
  std::int64_t process_;
  std::string where_;
  std::int64_t deadline_ns_;
  bool has_said_hello_ = false;
  std::string heard_;  // of the message that comes now
};

}  // namespace gigabar::fabric::wireup
