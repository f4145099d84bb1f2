// SPDX-License-Identifier: Apache-2.0
// The authenticated channels of one rank for one purpose: who connects to its sockets, whom it connects to, and what is said then.
// Used by the directory of a job and by the wire-up of its ranks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "secure/channel.hpp"
#include "secure/dial.hpp"
#include "secure/handshake.hpp"
#include "secure/pending_handshake.hpp"
#include "secure/pending_limit.hpp"
#include "secure/poller.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

// Connections that were rejected, by cause. Every connection that was accepted ends in a channel, goes by itself between two
// messages, is told that its rank has a channel already, or is counted here once.
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
  QueueLimits queue;
};

// Not for several threads at once. Nothing waits.
//
// The listener sends a fresh challenge; both send a hello and then a proof (handshake.hpp); every frame is encrypted and
// authenticated (stream.hpp). Nothing of the caller's is sent, and nothing told to it, before both have proven that they hold the
// job's key. A stranger learns nothing but that a rank listens. Without a key the job's id stands in for it.
class Endpoint {
 public:
  Endpoint(Identity identity, const Limits& limits, std::unique_ptr<Poller> poller);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  // Takes a socket that listens, Unix (only processes of the same user are heard) or TCP. False, with errno set, when it cannot be
  // watched or is not open.
  bool listen(Descriptor socket);

  // Starts to connect to one of `targets`, tried in turn until the deadline (now_ns() clock); connected() or lost() follows. Where
  // there are none `no_target_error` says why. When both ranks connect at once, one channel remains. `refresh`: see Dial.
  void dial(Rank rank, std::vector<SocketAddress>&& targets, std::int64_t deadline_ns, std::optional<Error>&& no_target_error = {},
            Dial::Refresh&& refresh = {});
  // False: it is neither connected nor being dialled, for which the deadline is then as late as this.
  bool extend_dial(Rank rank, std::int64_t deadline_ns);
  bool is_connected(Rank rank) const { return channels_.contains(rank); }
  // In order; queued when the socket is full, as far as the limits go (then busy). Errors: peer_lost, busy, invalid_argument.
  Result<void> send(Rank rank, Frame frame);
  // Sends what is queued if it goes at once and the sealed end, then closes. No lost() follows; the peer sees peer_lost.
  void disconnect(Rank rank) noexcept;
  // Nothing more passes, of what has come already neither; lost() follows. For one that breaks the caller's rules, or whose state
  // was lost for want of memory.
  void cut(Rank rank) noexcept;

  // True when something happened. Throws std::bad_alloc.
  bool poll(ChannelEvents& events);
  // An epoll descriptor: readable when poll() has something to do, timers too.
  int wake_descriptor() const noexcept { return poller_->descriptor(); }
  const Refusals& refusals() const noexcept { return refusals_; }
  // Bytes this process holds for the channel of `rank`.
  std::size_t memory_bytes(Rank rank) const;

 protected:
  const Identity& identity() const noexcept { return identity_; }

 private:
  struct Listener {
    Watched socket;
    bool is_unix = false;
  };
  struct Entry {
    Channel channel;
    std::uint32_t serial;  // of its tokens
  };
  using PendingHandshakes = std::map<std::uint32_t, PendingHandshake>;  // by serial number: the oldest first

  void handle(const epoll_event& event, ChannelEvents& events);
  void run_timers(bool is_more, ChannelEvents& events);
  void arm();
  void wake_soon() { wake_at_ns_ = 0, poller_->wake_at(0); }

  void accept_from(const Listener& listener);
  void receive(bool is_unix, Descriptor socket, const SocketAddress& from);
  void begin_handshake(Descriptor socket, Connection connection, std::string source);
  PendingLimit& limit_of(bool is_unix) noexcept { return is_unix ? unix_limit_ : tcp_limit_; }
  void make_room(bool is_unix);
  void drop(PendingHandshakes::iterator pending);
  void advance_handshake(PendingHandshakes::iterator pending, ChannelEvents& events);
  void decide(PendingHandshake& pending, ChannelEvents& events);
  void count(std::uint64_t Refusals::* counter, const std::string& where, const char* why);

  void advance_dial(Rank rank, ChannelEvents& events);
  void establish(Rank rank, Established established, ChannelEvents& events);
  // Runs what may take something out of the channel of `rank`; when it throws, that is lost, and so the channel is cut.
  template <class Body>
  void guarded(Rank rank, Body&& body);
  void flush(Rank rank, Channel& channel);
  void defer(Rank rank, std::int64_t at_ns);
  void serve(Rank rank, std::uint32_t what, ChannelEvents& events);
  void drain(Rank rank, ChannelEvents& events);
  void end_when_broken(Rank rank, ChannelEvents& events);

  Identity identity_;
  Limits limits_;
  std::unique_ptr<Poller> poller_;  // outlives all that is watched
  std::vector<Listener> listeners_;
  std::int64_t accept_again_at_ns_ = kNever;
  // Of pending_, kept apart: whoever comes by TCP takes no room from this host's ranks.
  PendingLimit unix_limit_, tcp_limit_;

  std::uint32_t serial_ = 0;
  PendingHandshakes pending_;
  std::map<Rank, Dial> dials_;
  std::map<Rank, Entry> channels_;
  std::set<Rank> deferred_;  // to be served without an event
  std::int64_t deferred_until_ns_ = kNever;
  std::int64_t now_ns_ = 0;  // of this poll()
  std::int64_t wake_at_ns_ = kNever;
  Refusals refusals_;
  std::unique_ptr<ReadBuffer> buffer_ = std::make_unique<ReadBuffer>();
};

}  // namespace gigabar::secure
