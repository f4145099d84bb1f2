// SPDX-License-Identifier: Apache-2.0
// The authenticated channels of one rank for one purpose: who connects to its sockets, whom it connects to, and what is said then.
// Used by the directory of a job and by the wire-up of its ranks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/in_place.hpp"
#include "secure/acceptor.hpp"
#include "secure/channel.hpp"
#include "secure/dial.hpp"
#include "secure/handshake.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

// Not for several threads at once. Nothing waits.
//
// The listener sends a fresh challenge; both send a hello and then a proof (handshake.hpp); every frame is encrypted and
// authenticated (channel.hpp). Nothing of the caller's is sent, and nothing told to it, before both have proven that they hold the
// job's key. A stranger learns nothing but that a rank listens. Without a key the job's id stands in for it.
class Endpoint : InPlace {
 public:
  Endpoint(Identity identity, const Limits& limits, std::unique_ptr<Poller> poller);
  ~Endpoint();

  // As of an Acceptor.
  bool listen(Descriptor socket) { return acceptor_.listen(std::move(socket)); }
  std::vector<SocketAddress> listen(std::span<const SocketAddress> addresses) { return acceptor_.listen(addresses); }

  // Starts to connect to one of `targets`, tried in turn until the deadline (now_ns() clock); connected() or lost() follows.
  // Nothing of it for a rank that is connected; one that is being dialled keeps its targets, until this deadline where that is
  // later. Where there are none `no_target_error` says why. When both ranks connect at once, one channel remains. `refresh`: see
  // Dial.
  void dial(Rank rank, std::vector<SocketAddress>&& targets, std::int64_t deadline_ns, std::optional<Error>&& no_target_error = {},
            Dial::Refresh&& refresh = {});
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
  const Refusals& refusals() const noexcept { return acceptor_.refusals(); }
  // Bytes this process holds for the channel of `rank`.
  std::size_t memory_bytes(Rank rank) const;

 protected:
  const Identity& identity() const noexcept { return identity_; }

 private:
  void handle(const epoll_event& event, ChannelEvents& events);
  void run_timers(bool is_more, ChannelEvents& events);
  void arm();
  std::uint64_t new_token(Rank rank) noexcept;

  Verdict judge(Rank peer, Rank peer_rank_count, ChannelEvents& events);
  void advance_dial(Rank rank, ChannelEvents& events);
  void establish(Rank rank, Established established, ChannelEvents& events);
  // Runs what may take something out of the channel of `rank`; when it throws, that is lost, and so the channel is cut. Those that
  // are served without an event are due then.
  template <class Body>
  void guarded(Rank rank, Body&& body);
  void flush(Channel& channel);
  void serve(Channel& channel, std::uint32_t what, ChannelEvents& events);
  void drain(Channel& channel, bool has_process_ended, ChannelEvents& events);
  void end_when_broken(Channel& channel, ChannelEvents& events);

  Identity identity_;
  QueueLimits queue_limits_;
  std::unique_ptr<Poller> poller_;  // outlives all that is watched
  Acceptor acceptor_;

  std::uint64_t serial_ = 0;
  std::map<Rank, Dial> dials_;
  std::map<Rank, Channel> channels_;
  std::int64_t deferred_until_ns_ = kNever;  // then those are served without an event that have a queue or broke
  std::int64_t now_ns_ = 0;                  // of this poll()
  std::unique_ptr<ReadBuffer> buffer_ = std::make_unique<ReadBuffer>();
};

}  // namespace gigabar::secure
