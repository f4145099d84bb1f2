// SPDX-License-Identifier: Apache-2.0
// Sockets that listen, and those who connected there and have yet to prove who they are (handshake.hpp). Until then nothing that
// they send is read by anything else, and nothing is kept for them but a place among a bounded number.
//
// Either all prove the key of one identity, or each has a key of its own: who connects then says the number of its connection
// first, and proves the key that is expected for that number.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/in_place.hpp"
#include "secure/channel.hpp"
#include "secure/handshake.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

// Where a connection comes from: an IPv4 address, or the network part of an IPv6 address, since one host may use all of the rest.
std::string source_of(const SocketAddress& address);

// Connections that have not proved the job's key yet, and which of them makes room for the next one.
//
// Nobody has a place of his own as long as there is room. When there is none, one that has not shown the key goes, of the source
// that has most of those: who fills the room from one address cannot keep those of other addresses out. Of several such sources the
// oldest one goes, so that a flood from many addresses puts out its own. Who has shown the key is no stranger: the oldest goes when
// all have. Each has a moment to speak before it may be put out, so that ranks that all come at once are not taken for a flood.
class PendingLimit {
 public:
  using Id = std::uint64_t;  // ascending: a later one has come later

  PendingLimit(std::size_t max_count, std::int64_t grace_before_hello_ns, std::int64_t grace_after_hello_ns) noexcept
      : max_count_(max_count), grace_before_hello_ns_(grace_before_hello_ns), grace_after_hello_ns_(grace_after_hello_ns) {}

  // Throws std::bad_alloc; it is not there then.
  void add(Id id, std::string source, std::int64_t now_ns);
  // It has shown the key.
  void note_hello(Id id);
  // No effect when it is not there.
  void remove(Id id);
  std::size_t count() const noexcept { return all_.size(); }
  bool is_full() const noexcept { return all_.size() >= max_count_; }
  // Who has to go when the next one comes. Nothing: that one has not had its moment yet.
  std::optional<Id> weakest(std::int64_t now_ns) const;

 private:
  struct Pending {
    std::string source;
    std::int64_t came_ns = 0;
    bool has_hello = false;
  };

  std::size_t max_count_;
  std::int64_t grace_before_hello_ns_, grace_after_hello_ns_;
  std::map<Id, Pending> all_;
  std::map<std::string, std::size_t> silent_counts_;  // by source: those that have not shown the key
};

// Connections that were rejected, by cause. Every connection that was accepted ends proven, goes by itself between two messages, is
// told that its rank has a channel already, or is counted here once. Of one that named the number of a connection all is
// `wrong_key`.
struct Refusals {
  std::uint64_t wrong_key = 0;
  std::uint64_t malformed = 0;
  std::uint64_t too_slow = 0;     // did not finish the handshake in 5 s
  std::uint64_t crowded_out = 0;  // made room for others: see PendingLimit
  std::uint64_t wrong_job = 0;  // another job, rank count, version or a rank that cannot be (of a directory: that is there already)
  std::uint64_t another_user = 0;   // at the Unix socket
  std::uint64_t out_of_memory = 0;  // the system had no memory to watch it
  std::uint64_t total() const noexcept {
    return wrong_key + malformed + too_slow + crowded_out + wrong_job + another_user + out_of_memory;
  }
};

struct Limits {
  std::int64_t handshake_ns = 5'000'000'000;        // for strangers
  std::size_t max_pending_handshakes = 128;         // of strangers, on Unix sockets and on TCP each
  std::int64_t grace_before_hello_ns = 20'000'000;  // before who has not shown the key may have to make room
  std::int64_t grace_after_hello_ns = 250'000'000;  // the same of who has, and has not proved it
  QueueLimits queue;                                // of a channel
};

// A connection that has proved its key.
struct ProvenConnection {
  std::uint64_t number = 0;  // that it named
  Rank peer = 0;
  Established established;
};

// What a connection begins with that has a key of its own: its number. For Dial::set_link().
inline constexpr std::size_t kPreambleBytes = 8;
std::string preamble_of(std::uint64_t number);

struct Heard;  // acceptor.cpp: what came of what was read

class Acceptor : InPlace {
 public:
  // The tokens of its events are numbers below 2^56. `identity` is that of all connections, and outlives this; null: expect() has
  // those of each.
  explicit Acceptor(Poller& poller, const Limits& limits = {}, const Identity* identity = nullptr) noexcept;

  // Takes a socket that listens, Unix (only processes of the same user are heard) or TCP. False, with errno set, when it cannot be
  // watched or is not open.
  bool listen(Descriptor socket);
  // Listens at each address where that is possible, and returns those with their ports. errno: 0, or why one of them is missing.
  std::vector<SocketAddress> listen(std::span<const SocketAddress> addresses);

  // One connection of this number may come.
  void expect(std::uint64_t number, Identity identity);
  void forget(std::uint64_t number) noexcept;

  // What one that holds the key is told. Without it: to proceed.
  using Judge = std::function<Verdict(Rank peer, Rank peer_rank_count)>;
  // An event. Throws what `judge` throws, with whom it concerned dropped.
  std::optional<ProvenConnection> handle(std::uint64_t token, std::int64_t now_ns, const Judge& judge = {});
  // `is_more`: there are events that were not handled yet.
  void run_timers(std::int64_t now_ns, bool is_more);
  std::int64_t next_ns() const noexcept;
  const Refusals& refusals() const noexcept { return refusals_; }

 private:
  static constexpr std::uint64_t kMaxListeners = 65536;
  struct Listener {
    Watched socket;
    bool is_unix = false;
  };
  // Has a place of the limit as long as it is there.
  struct Pending : InPlace {
    Pending(PendingLimit& of, PendingLimit::Id id, const SocketAddress& from, std::int64_t now_ns) : limit(of), serial(id) {
      limit.add(serial, source_of(from), now_ns);
    }
    ~Pending() { limit.remove(serial); }

    PendingLimit& limit;
    const PendingLimit::Id serial;
    Connection connection;
    std::int64_t deadline_ns = 0;
    std::uint64_t number = 0;
    std::optional<Handshake> handshake;  // none: it has not named its connection
    bool has_sent_hello = false;         // it has shown the key for this connection
    std::string received;                // of the message that comes now

    // Sends the challenge. False: the connection is of no use.
    bool begin(const Identity& identity);
    Heard read();
    Heard missing(Arrival arrival) const;
    // To a stranger: nothing that was made with the key.
    Heard reject(Verdict verdict, Heard why);
    int socket() const noexcept { return connection.socket.get(); }
  };
  using AllPending = std::map<PendingLimit::Id, Pending>;  // by serial number: the oldest first

  void accept(const Listener& listener, std::int64_t now_ns);
  void pause(const Listener& listener, std::int64_t until_ns);
  void begin(Descriptor socket, bool is_unix, const SocketAddress& from, std::optional<PendingLimit::Id> weakest,
             std::int64_t now_ns);
  Heard read(Pending& pending);
  std::optional<ProvenConnection> advance(AllPending::iterator found, const Judge& judge);
  Heard say_verdict(Pending& pending, const Judge& judge);
  void refuse(std::uint64_t Refusals::* counter, const std::string& where, const char* why) noexcept;

  Poller& poller_;
  const Identity* identity_;
  std::int64_t handshake_ns_;
  std::vector<Listener> listeners_;  // their tokens are their indexes
  std::unordered_map<std::uint64_t, Identity> expected_;
  std::array<PendingLimit, 2> limits_;  // of TCP, and of Unix sockets: whoever comes by TCP takes no room from this host's ranks
  AllPending pending_;
  std::uint64_t serial_ = kMaxListeners;  // tokens of pending connections
  std::int64_t accept_again_at_ns_ = kNever;
  Refusals refusals_;
};

}  // namespace gigabar::secure
