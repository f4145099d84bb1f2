// SPDX-License-Identifier: Apache-2.0
// Rank 0's directory: all cards, given out within poll() to ranks that have proved themselves.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/job/handshake.hpp"
#include "fabric/job/sealed_stream.hpp"
#include "fabric/job/sockets.hpp"
#include "fabric/job/strangers.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::int64_t kAcceptPauseNs = 100'000'000;  // when the process has no descriptor left
constexpr std::int64_t kCrowdPauseNs = 5'000'000;     // when all who wait have come just now
constexpr std::int64_t kGraceNs = 20'000'000;         // for one to say what is next before it may have to make room
constexpr std::size_t kMostPending = 1024;
constexpr int kMostEvents = 64;                    // of one look
constexpr int kMostAccepts = 64;                   // of one event
constexpr std::size_t kMostQueuedBytes = 1 << 20;  // before a member's further questions have to wait

using ConnectionId = std::uint64_t;
constexpr ConnectionId kTimer = 0;
// Of listeners: from 1 on, below the first connection's.
constexpr ConnectionId kFirstConnection = 1 << 16;

// Strangers must not take the descriptors that the rest of the process needs.
std::size_t most_pending() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostPending;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, kMostPending);
}

struct Connection {
  enum class Stage : std::uint8_t { hello, proof, member };

  Connection(ConnectionId number, Descriptor socket, std::int64_t deadline)
      : id(number), stream(std::move(socket)), deadline_ns(deadline) {}

  ConnectionId id;
  ByteStream stream;
  SealedStream sealed;
  Stage stage = Stage::hello;
  std::int64_t deadline_ns;  // of the handshake
  std::string hello, own_hello;
  Rank rank = 0;
  Rank rank_count = 0;
  std::uint32_t events = EPOLLIN;
  std::unordered_set<Rank> awaited;  // cards that it asked for and that have not come
};

class Keeper final : public Directory {
 public:
  Keeper(const Job& job, std::vector<Descriptor> listeners, std::int64_t handshake_ns)
      : job_(job),
        handshake_(job),
        handshake_ns_(handshake_ns),
        listeners_(std::move(listeners)),
        strangers_(most_pending(), kGraceNs, kGraceNs) {}

  Outcome start();
  Outcome publish(std::string card) override;
  Result<std::optional<std::string>> card(Rank rank) override;
  Outcome poll() override;
  int wake_descriptor() const noexcept override { return epoll_.get(); }
  std::uint64_t refused_count() const noexcept override { return refused_count_; }

 private:
  enum class End : std::uint8_t { left, refused };

  std::uint64_t refused_count_ = 0;
  void accept_some(const Descriptor& listener);
  bool make_room();
  void add(Descriptor socket, const sockaddr_storage& from);
  bool want_listeners(std::uint32_t events);
  void pause_accepting(std::int64_t until_ns);
  void resume_accepting();
  void serve(ConnectionId id, std::uint32_t events);
  bool advance(Connection& connection);
  bool read_hello_of(Connection& connection);
  bool read_proof_of(Connection& connection);
  bool read_messages_of(Connection& connection);
  bool follow(Connection& connection, Letter& message);
  void welcome(Connection& connection);
  void keep(Rank rank, std::string card);
  void give(Connection& connection, Rank rank);
  void send(Connection& connection, const Letter& message) { connection.stream.queue(connection.sealed.seal(message)); }
  void watch(Connection& connection);
  void drop(ConnectionId id, End end);
  void end_slow_handshakes();
  void set_timer();

  Job job_;
  Handshake handshake_;
  std::int64_t handshake_ns_;
  std::vector<Descriptor> listeners_;
  Descriptor epoll_, timer_;
  Strangers strangers_;  // connections that have not proved themselves
  std::unordered_map<ConnectionId, std::unique_ptr<Connection>> connections_;
  ConnectionId next_id_ = kFirstConnection;
  std::deque<ConnectionId> handshakes_;  // in the order of their deadlines; those that are done are skipped
  bool is_accepting_ = true;
  std::int64_t accept_again_ns_ = 0;
  std::int64_t timer_ns_ = 0;  // what it is set to; 0: not
  std::unordered_map<Rank, ConnectionId> members_;
  std::unordered_map<Rank, std::string> cards_;
  std::unordered_map<Rank, std::vector<ConnectionId>> waiting_;
};

Error failed(const char* call, int code) {
  return make_error(status_of_errno(code), call, "the job's directory", std::strerror(code), {}, errno_code(code));
}

Outcome Keeper::start() {
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open()) return failed("epoll_create1", errno);
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.is_open()) return failed("timerfd_create", errno);
  std::vector<int> watched{timer_.get()};  // in the order of their numbers
  for (const Descriptor& listener : listeners_) watched.push_back(listener.get());
  for (std::size_t id = 0; id < watched.size(); ++id) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched[id], &event) != 0) return failed("epoll_ctl", errno);
  }
  return {};
}

Outcome Keeper::publish(std::string card) {
  if (Outcome checked = check_card(card, cards_.contains(job_.rank)); !checked) return checked;
  keep(job_.rank, std::move(card));
  return {};
}

Result<std::optional<std::string>> Keeper::card(Rank rank) {
  if (Outcome checked = check_rank(job_, rank); !checked) return std::move(checked).take_error();
  const auto found = cards_.find(rank);
  return found == cards_.end() ? std::optional<std::string>() : std::optional(found->second);
}

// Bounded work: what is left keeps the epoll descriptor readable.
Outcome Keeper::poll() {
  std::array<epoll_event, kMostEvents> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMostEvents, 0);
  if (count < 0 && errno != EINTR) return failed("epoll_wait", errno);
  for (int index = 0; index < count; ++index) {
    const epoll_event& event = events[static_cast<std::size_t>(index)];
    if (event.data.u64 >= kFirstConnection) {
      serve(event.data.u64, event.events);
    } else if (event.data.u64 != kTimer) {
      accept_some(listeners_[event.data.u64 - 1]);
    }
  }
  // Only when nothing that has come is left unread: the time may have been ours, between two polls.
  if (count >= 0 && count < kMostEvents) end_slow_handshakes();
  resume_accepting();
  set_timer();
  return {};
}

void Keeper::accept_some(const Descriptor& listener) {
  for (int count = 0; count < kMostAccepts; ++count) {
    // Nobody goes for one who does not come.
    if (strangers_.is_full() && !wait_for(listener.get(), POLLIN, 0)) return;
    if (!make_room()) return pause_accepting(now_ns() + kCrowdPauseNs);
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      add(std::move(socket), from);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      const Error told =
          make_error(status_of_errno(errno), "accept", "the job's directory",
                     "ranks that connect have to wait until a descriptor is free", "raise 'ulimit -n'", errno_code(errno));
      return pause_accepting(now_ns() + kAcceptPauseNs);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // nobody is left, or one that is gone already
    }
  }
}

// False: all who have not proved themselves came just now.
bool Keeper::make_room() {
  if (!strangers_.is_full()) return true;
  const auto weakest = strangers_.weakest(now_ns());
  if (weakest) drop(*weakest, End::refused);
  return weakest.has_value();
}

void Keeper::add(Descriptor socket, const sockaddr_storage& from) {
  if (from.ss_family != AF_UNIX) {
    prepare_stream(socket.get());
  } else if (!is_of_this_user(socket.get())) {
    ++refused_count_;
    return;
  }
  const ConnectionId id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    ++refused_count_;  // it will try again
    return;
  }
  const std::int64_t now = now_ns();
  connections_.emplace(id, std::make_unique<Connection>(id, std::move(socket), now + handshake_ns_));
  handshakes_.push_back(id);
  strangers_.add(id, source_of(from), now);
}

bool Keeper::want_listeners(std::uint32_t events) {
  for (std::size_t index = 0; index < listeners_.size(); ++index) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = index + 1;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[index].get(), &event) != 0) return false;
  }
  return true;
}

void Keeper::pause_accepting(std::int64_t until_ns) {
  if (!want_listeners(0)) return;
  is_accepting_ = false;
  accept_again_ns_ = until_ns;
}

void Keeper::resume_accepting() {
  if (is_accepting_ || now_ns() < accept_again_ns_) return;
  is_accepting_ = want_listeners(EPOLLIN);
}

void Keeper::serve(ConnectionId id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // dropped by an earlier event of the same look
  Connection& connection = *found->second;
  if (!connection.stream.send_queued()) return drop(id, End::left);
  bool has_peer = true;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) has_peer = connection.stream.receive(most_sealed_bytes());
  // Questions that waited for room, too.
  const bool is_well = advance(connection);
  const bool is_sent = connection.stream.send_queued();  // a refusal, too
  // Who goes between two messages of the handshake has done nothing wrong.
  if (!is_well) return drop(id, End::refused);
  if (!has_peer || !is_sent) return drop(id, connection.stream.received().empty() ? End::left : End::refused);
  watch(connection);
}

// False: the connection is of no more use.
bool Keeper::advance(Connection& connection) {
  if (connection.stage == Connection::Stage::hello && !read_hello_of(connection)) return false;
  if (connection.stage == Connection::Stage::proof && !read_proof_of(connection)) return false;
  return connection.stage != Connection::Stage::member || read_messages_of(connection);
}

bool Keeper::read_hello_of(Connection& connection) {
  if (!begins_hello(connection.stream.received())) return false;
  if (connection.stream.received().size() < kHelloBytes) return true;
  connection.hello = connection.stream.received().substr(0, kHelloBytes);
  const auto hello = read_hello(connection.hello);
  if (!hello) return false;
  connection.stream.use(kHelloBytes);
  connection.rank = hello->rank;
  connection.rank_count = hello->rank_count;
  connection.own_hello = write_hello(make_hello(job_));
  connection.stream.queue(connection.own_hello);
  connection.stage = Connection::Stage::proof;
  strangers_.has_spoken(connection.id);
  return hello->version == kDirectoryVersion;
}

bool Keeper::read_proof_of(Connection& connection) {
  if (connection.stream.received().size() < kProofBytes) return true;
  const std::string proof(connection.stream.received().substr(0, kProofBytes));
  connection.stream.use(kProofBytes);
  const auto derive = [&](Purpose purpose) { return handshake_.derive(purpose, connection.hello, connection.own_hello); };
  if (!is_proof(derive(Purpose::member_proof), proof)) {
    connection.stream.queue(std::string(kProofBytes, '\0'));
    return false;
  }
  connection.stream.queue(proof_text(derive(Purpose::keeper_proof)));
  connection.sealed = SealedStream(derive(Purpose::keeper_sends), derive(Purpose::member_sends));
  if (connection.rank_count != job_.rank_count || connection.rank >= job_.rank_count) {
    send(connection, {LetterType::wrong_count, job_.rank_count, {}});
    return false;
  }
  if (connection.rank == job_.rank || members_.contains(connection.rank)) {
    send(connection, {LetterType::rank_taken, connection.rank, {}});
    return false;
  }
  welcome(connection);
  return true;
}

void Keeper::welcome(Connection& connection) {
  connection.stage = Connection::Stage::member;
  strangers_.remove(connection.id);
  members_[connection.rank] = connection.id;
  send(connection, {LetterType::welcome, connection.rank, {}});
}

bool Keeper::read_messages_of(Connection& connection) {
  while (connection.stream.queued_bytes() < kMostQueuedBytes) {
    Letter message;
    const SealedStream::Found found = connection.sealed.next(connection.stream, message);
    if (found == SealedStream::Found::nothing) return true;
    if (found == SealedStream::Found::broken || !follow(connection, message)) return false;
  }
  return true;
}

// Takes the body where it is kept.
bool Keeper::follow(Connection& connection, Letter& message) {
  if (message.type == LetterType::publish) {
    keep(connection.rank, std::move(message.body));
    return true;
  }
  if (message.type != LetterType::ask || message.rank >= job_.rank_count) return false;
  if (cards_.contains(message.rank)) {
    give(connection, message.rank);
  } else if (connection.awaited.insert(message.rank).second) {
    waiting_[message.rank].push_back(connection.id);
  }
  return true;
}

// A rank that was started anew brings a new card.
void Keeper::keep(Rank rank, std::string card) {
  cards_[rank] = std::move(card);
  const auto found = waiting_.find(rank);
  if (found == waiting_.end()) return;
  const std::vector<ConnectionId> waiting = std::move(found->second);
  waiting_.erase(found);
  for (const ConnectionId id : waiting) {
    const auto connection = connections_.find(id);
    if (connection == connections_.end()) continue;
    connection->second->awaited.erase(rank);
    give(*connection->second, rank);
    // A broken one is told by the next poll.
    static_cast<void>(connection->second->stream.send_queued());
    watch(*connection->second);
  }
}

void Keeper::give(Connection& connection, Rank rank) { send(connection, {LetterType::card, rank, cards_[rank]}); }

// A member that asks faster than it takes the answers is not read from.
void Keeper::watch(Connection& connection) {
  const std::size_t queued_bytes = connection.stream.queued_bytes();
  const std::uint32_t events = (queued_bytes > 0 ? EPOLLOUT : 0U) | (queued_bytes < kMostQueuedBytes ? EPOLLIN : 0U);
  if (events == connection.events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.stream.descriptor(), &event) == 0) connection.events = events;
}

void Keeper::drop(ConnectionId id, End end) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection& connection = *found->second;
  if (connection.stage == Connection::Stage::member) {
    members_.erase(connection.rank);
    for (const Rank rank : connection.awaited) std::erase(waiting_[rank], id);
  } else {
    strangers_.remove(id);
    if (end == End::refused) ++refused_count_;
  }
  connections_.erase(found);  // closes the socket, which takes it out of the epoll set
}

void Keeper::end_slow_handshakes() {
  const std::int64_t now = now_ns();
  while (!handshakes_.empty()) {
    const auto found = connections_.find(handshakes_.front());
    const bool is_pending = found != connections_.end() && found->second->stage != Connection::Stage::member;
    if (is_pending && found->second->deadline_ns > now) return;
    if (is_pending) drop(found->first, End::refused);
    handshakes_.pop_front();
  }
}

void Keeper::set_timer() {
  std::int64_t next_ns = is_accepting_ ? 0 : accept_again_ns_;
  if (!handshakes_.empty()) {
    const auto found = connections_.find(handshakes_.front());
    // One that is done takes no more than a look.
    const std::int64_t first_ns = found != connections_.end() ? found->second->deadline_ns : now_ns();
    next_ns = next_ns == 0 ? first_ns : std::min(next_ns, first_ns);
  }
  if (next_ns == timer_ns_) return;
  itimerspec setting{};
  setting.it_value.tv_sec = next_ns / 1'000'000'000;
  setting.it_value.tv_nsec = next_ns % 1'000'000'000;
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &setting, nullptr) == 0) timer_ns_ = next_ns;
}

}  // namespace

Result<std::unique_ptr<Directory>> open_keeper(const Job& job, std::int64_t handshake_ns) {
  // Nobody could come to an address that is wrong: the other ranks are told so too.
  if (const auto known = master_addresses(job); !known) return known.error();
  auto listeners = listen_as_master(job);
  if (!listeners) return listeners.error();
  auto keeper = std::make_unique<Keeper>(job, std::move(*listeners), handshake_ns);
  if (Outcome started = keeper->start(); !started) return std::move(started).take_error();
  return std::unique_ptr<Directory>(std::move(keeper));
}

}  // namespace gigabar::fabric
