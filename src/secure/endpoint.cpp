// SPDX-License-Identifier: Apache-2.0
#include "secure/endpoint.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"

namespace gigabar::secure {
namespace {

constexpr std::int64_t kFlushPauseNs = 5'000'000;
constexpr int kMaxDrainRounds = 64;

// Tokens of this endpoint's sockets have the first bit, the acceptor's do not. Then come a serial number, and a rank in the last
// four bytes. The serial keeps an event that was fetched before its object went from reaching the next one.
constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;
constexpr std::uint64_t kOfProcess = std::uint64_t{1} << 62;  // the process of the channel that has the rest for its token
constexpr std::uint64_t kMaxSerial = (std::uint64_t{1} << 30) - 1;

}  // namespace

Endpoint::Endpoint(Identity identity, const Limits& limits, std::unique_ptr<Poller> poller)
    : identity_(std::move(identity)),
      queue_limits_(limits.queue),
      poller_(std::move(poller)),
      acceptor_(*poller_, limits, &identity_) {}

Endpoint::~Endpoint() {
  if (!poller_->is_owner()) return;  // the channels are the parent's
  while (!channels_.empty()) disconnect(channels_.begin()->first);
}

std::uint64_t Endpoint::new_token(Rank rank) noexcept { return kOwn | (++serial_ & kMaxSerial) << 32 | rank; }

// --- Connecting ------------------------------------------------------------------------------------------------------------------

// Two ranks that connect to each other at once. The lower one's connection stays when both have come to their proofs: the lower one
// refuses the other from then on, and the higher one accepts and forgets its own, which the lower one cannot have accepted before,
// because it would have given up its own then.
Verdict Endpoint::judge(Rank peer, Rank peer_rank_count, ChannelEvents& events) {
  if (peer_rank_count != identity_.rank_count) return Verdict::wrong_count;
  // The end of an older channel may be waiting to be read.
  if (const auto known = channels_.find(peer); known != channels_.end())
    guarded(peer, [&] { drain(known->second, false, events); });
  const auto dial = dials_.find(peer);
  const bool is_ours_under_way = dial != dials_.end() && dial->second.has_sent_proof() && identity_.rank < peer;
  return channels_.contains(peer) || is_ours_under_way ? Verdict::occupied : Verdict::proceed;
}

void Endpoint::dial(Rank rank, std::vector<SocketAddress>&& targets, std::int64_t deadline_ns,
                    std::optional<Error>&& no_target_error, Dial::Refresh&& refresh) {
  if (channels_.contains(rank)) return;
  const auto [place, is_new] = dials_.try_emplace(rank, identity_, *poller_, new_token(rank), rank, std::move(targets), deadline_ns,
                                                  std::move(no_target_error), std::move(refresh));
  place->second.extend(deadline_ns);
  poller_->wake_at(0);
}

void Endpoint::advance_dial(Rank rank, ChannelEvents& events) {
  const auto dial = dials_.find(rank);
  if (dial == dials_.end()) return;
  const Dial::Progress progress = dial->second.advance(now_ns_);
  if (progress == Dial::Progress::going) return;
  if (progress == Dial::Progress::connected) return establish(rank, dial->second.take(), events);
  const Error error = dial->second.error();
  dials_.erase(dial);
  events.lost(rank, error);
}

void Endpoint::establish(Rank rank, Established established, ChannelEvents& events) {
  const std::uint64_t token = new_token(rank);
  Connection& connection = established.connection;
  const bool is_same_host = connection.is_unix;
  const std::int64_t process = connection.process;
  connection.socket.rename(token, EPOLLIN | EPOLLRDHUP);
  // The socket tells the end of the process too, but not while a child that it forked holds a copy.
  Watched process_watch;
  if (identity_.purpose == Purpose::wireup && is_same_host && process > 0 && process != ::getpid()) {
    // Not open when the kernel has no such thing; close-on-exec by itself.
    Descriptor watch(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
    if (watch.is_open()) process_watch = Watched(*poller_, std::move(watch), token | kOfProcess, EPOLLIN);
  }
  channels_.try_emplace(rank, rank, std::move(established), std::move(process_watch), queue_limits_);
  dials_.erase(rank);  // not before: without memory for the channel it goes on
  guarded(rank, [&] { events.connected(rank, is_same_host, process); });
}

// --- Channels --------------------------------------------------------------------------------------------------------------------

Result<void> Endpoint::send(Rank rank, Frame frame) {
  const auto found = channels_.find(rank);
  if (found == channels_.end()) {
    return make_error(Status::peer_lost, "send frame", text("rank ", rank), "there is no channel to it", "connect to it first");
  }
  Channel& channel = found->second;
  const bool has_waited = channel.has_queue();
  if (Result<void> sent = channel.send(std::move(frame)); !sent) return sent;
  if (!has_waited) guarded(rank, [&] { flush(channel); });
  return {};
}

void Endpoint::flush(Channel& channel) {
  if (channel.flush() && !channel.is_broken()) return;
  // Of one that cannot send, what is left to be read is told, then the end.
  deferred_until_ns_ = std::min(deferred_until_ns_, channel.is_broken() ? now_ns_ : now_ns() + kFlushPauseNs);
  poller_->wake_at(std::min(poller_->wake_at_ns(), deferred_until_ns_));
}

void Endpoint::disconnect(Rank rank) noexcept {
  dials_.erase(rank);
  const auto found = channels_.find(rank);
  if (found == channels_.end()) return;
  found->second.seal_end();
  end_connection(found->second.socket());
  channels_.erase(found);
}

void Endpoint::cut(Rank rank) noexcept {
  if (const auto found = channels_.find(rank); found != channels_.end()) found->second.cut();
}

template <class Body>
void Endpoint::guarded(Rank rank, Body&& body) try {
  body();
} catch (...) {
  cut(rank);
  deferred_until_ns_ = std::min(deferred_until_ns_, now_ns_);
  throw;
}

void Endpoint::serve(Channel& channel, std::uint32_t what, ChannelEvents& events) {
  if ((what & EPOLLOUT) != 0) flush(channel);
  if (!channel.receive(*buffer_, events)) end_when_broken(channel, events);
}

// Reads all that has come, as far as it ends. Of a process that has ended all is here; a child that it forked may hold the socket
// open, but is not the rank.
void Endpoint::drain(Channel& channel, bool has_process_ended, ChannelEvents& events) {
  bool is_more = true;
  for (int round = 0; is_more && round < kMaxDrainRounds; ++round) is_more = channel.receive(*buffer_, events);
  if (has_process_ended) channel.break_off("its process has ended");
  if (!is_more || has_process_ended) end_when_broken(channel, events);
}

void Endpoint::end_when_broken(Channel& channel, ChannelEvents& events) {
  if (!channel.is_broken()) return;
  const Rank rank = channel.rank();
  const Fault fault = channel.end();
  const Error error =
      make_error(Status::peer_lost, "channel", text("rank ", rank, " (", channel.where(), ")"), fault.cause, {}, fault.native);
  end_connection(channel.socket());
  channels_.erase(rank);
  events.lost(rank, error);
}

std::size_t Endpoint::memory_bytes(Rank rank) const {
  std::size_t bytes = 0;
  if (const auto found = channels_.find(rank); found != channels_.end()) bytes += found->second.memory_bytes();
  if (const auto dial = dials_.find(rank); dial != dials_.end()) bytes += dial->second.memory_bytes();
  return bytes;
}

// --- Polling ---------------------------------------------------------------------------------------------------------------------

void Endpoint::handle(const epoll_event& event, ChannelEvents& events) {
  const std::uint64_t token = event.data.u64;
  if (token == Poller::kTimerToken) return;
  if ((token & kOwn) == 0) {
    auto proven = acceptor_.handle(token, now_ns_, [&](Rank peer, Rank count) { return judge(peer, count, events); });
    if (proven) establish(proven->peer, std::move(proven->established), events);
    return;
  }
  const auto rank = static_cast<Rank>(token);
  if (const auto dial = dials_.find(rank); dial != dials_.end() && dial->second.token() == token) return advance_dial(rank, events);
  const auto found = channels_.find(rank);
  if (found == channels_.end() || found->second.token() != (token & ~kOfProcess)) return;
  guarded(rank, [&] {
    if ((token & kOfProcess) == 0) return serve(found->second, event.events, events);
    drain(found->second, true, events);
  });
}

void Endpoint::run_timers(bool is_more, ChannelEvents& events) {
  acceptor_.run_timers(now_ns_, is_more);
  if (deferred_until_ns_ <= now_ns_) {
    deferred_until_ns_ = kNever;
    for (auto next = channels_.begin(); next != channels_.end();) {
      const Rank rank = next->first;
      Channel& channel = next->second;
      if (channel.has_queue() || channel.is_broken()) guarded(rank, [&] { serve(channel, EPOLLOUT, events); });
      next = channels_.upper_bound(rank);  // it may have gone
    }
  }
  std::vector<Rank> due;
  for (const auto& [rank, dial] : dials_) {
    if (dial.next_ns() <= now_ns_) due.push_back(rank);
  }
  for (const Rank rank : due) advance_dial(rank, events);
}

void Endpoint::arm() {
  std::int64_t next_ns = std::min(acceptor_.next_ns(), deferred_until_ns_);
  for (const auto& [rank, dial] : dials_) next_ns = std::min(next_ns, dial.next_ns());
  poller_->wake_at(next_ns);
}

bool Endpoint::poll(ChannelEvents& events) {
  std::array<epoll_event, 64> ready;
  const std::size_t count = poller_->take(ready);
  now_ns_ = now_ns();
  if (count == 0 && now_ns_ < poller_->wake_at_ns()) return false;
  const Undo armed([&] { arm(); });  // also when `events` throw
  for (std::size_t index = 0; index < count; ++index) handle(ready[index], events);
  run_timers(count == ready.size(), events);
  return true;
}

}  // namespace gigabar::secure
