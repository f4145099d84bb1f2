// SPDX-License-Identifier: Apache-2.0
// Sockets that listen for many connections, each with a key of its own. Who connects says the number of its connection, and proves
// the key that is expected for that number (handshake.hpp); until then nothing that it sends is read by anything else, and nothing
// is kept for it but its place among a bounded number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "secure/pending_handshake.hpp"
#include "secure/pending_limit.hpp"

namespace gigabar::secure {

// A connection that has proved its key.
struct ProvenConnection {
  std::uint64_t number = 0;
  Established established;
};

// What a connection begins with: its number. For Dial::set_link().
inline constexpr std::size_t kPreambleBytes = 8;
std::string preamble_of(std::uint64_t number);

class Acceptor {
 public:
  // The tokens of its events are numbers below 2^63.
  explicit Acceptor(Poller& poller) noexcept;

  // Listens at each address where that is possible, and returns those with their ports. None, with errno set: nowhere.
  std::vector<SocketAddress> listen(std::span<const SocketAddress> addresses);

  // One connection of this number may come.
  void expect(std::uint64_t number, Identity identity);
  void forget(std::uint64_t number) noexcept;

  // An event. Throws std::bad_alloc, with whom it concerned turned away.
  std::optional<ProvenConnection> handle(std::uint64_t token, std::int64_t now_ns);
  void run_timers(std::int64_t now_ns);
  std::int64_t next_ns() const noexcept;

  // Connections that were turned away.
  std::uint64_t refused_count() const noexcept { return refused_count_; }

 private:
  static constexpr std::uint64_t kMaxListeners = 65536;
  struct Pending {
    Connection connection;  // until there is a handshake
    std::int64_t deadline_ns = 0;
    std::string preamble;
    std::uint64_t number = 0;
    std::optional<PendingHandshake> handshake;
  };
  using AllPending = std::map<std::uint64_t, Pending>;  // by serial number: the oldest first

  void accept(const Watched& listener, std::int64_t now_ns);
  void make_room(std::int64_t now_ns);
  void begin(Descriptor socket, const SocketAddress& from, std::int64_t now_ns);
  bool read_preamble(Pending& pending);
  std::optional<ProvenConnection> advance(AllPending::iterator found);
  void drop(AllPending::iterator pending);
  void refuse(AllPending::iterator pending, const char* why);

  Poller& poller_;
  std::vector<Watched> listeners_;  // their tokens are their indexes
  std::unordered_map<std::uint64_t, Identity> expected_;
  AllPending pending_;
  PendingLimit limit_;
  std::uint64_t serial_ = kMaxListeners;  // tokens of pending connections
  std::int64_t accept_again_at_ns_ = kNever;
  std::uint64_t refused_count_ = 0;
};

}  // namespace gigabar::secure
