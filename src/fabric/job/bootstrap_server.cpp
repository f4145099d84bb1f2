// SPDX-License-Identifier: Apache-2.0
// Rank 0's directory: all addresses, given out within poll() to ranks that have proved themselves.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"
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
constexpr std::size_t kMaxPending = 1024;
constexpr int kMaxEvents = 64;                    // of one look
constexpr int kMaxAccepts = 64;                   // of one event
constexpr std::size_t kMaxQueuedBytes = 1 << 20;  // before a member's further questions have to wait

using ConnectionId = std::uint64_t;
constexpr ConnectionId kTimer = 0;
// Of listeners: from 1 on, below the first connection's.
constexpr ConnectionId kFirstConnection = 1 << 16;

// Strangers must not take the descriptors that the rest of the process needs.
std::size_t most_pending() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMaxPending;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, kMaxPending);
}

struct Connection {
  enum class Stage : std::uint8_t { hello, proof, member };

  Connection(ConnectionId number, bool is_unix_socket, Descriptor socket, std::int64_t deadline)
      : id(number), is_unix(is_unix_socket), stream(std::move(socket)), deadline_ns(deadline) {}

  ConnectionId id;
  bool is_unix;
  ByteStream stream;
  SealedStream sealed;
  Stage stage = Stage::hello;
  std::int64_t deadline_ns;  // of the handshake
  std::string hello, own_hello;
  Rank rank = 0;
  Rank rank_count = 0;
  std::uint32_t events = EPOLLIN;
  std::unordered_set<Rank> awaited;  // addresses that it asked for and that have not come
};

struct Listener {
  explicit Listener(Descriptor listening) : socket(std::move(listening)) {
    int family = 0;
    socklen_t bytes = sizeof family;
    is_unix = ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
  }
  Descriptor socket;
  bool is_unix = false;
};

class BootstrapServer final : public Directory {
 public:
  BootstrapServer(const Job& job, std::vector<Descriptor> listeners, std::int64_t handshake_ns)
      : job_(job),
        handshake_(job),
        handshake_ns_(handshake_ns),
        unix_strangers_(most_pending(), kGraceNs, kGraceNs),
        tcp_strangers_(unix_strangers_) {
    for (Descriptor& listener : listeners) listeners_.emplace_back(std::move(listener));
  }

  Result<void> start();
  Result<void> publish(std::string rank_address) override;
  Result<std::optional<std::string>> rank_address(Rank rank) override;
  Result<void> poll() override;
  int wake_descriptor() const noexcept override { return epoll_.get(); }
  std::uint64_t refused_count() const noexcept override { return refused_count_; }

 private:
  enum class End : std::uint8_t { left, refused };

  std::uint64_t refused_count_ = 0;
  void accept_some(const Listener& listener);
  Strangers& strangers_of(bool is_unix) noexcept { return is_unix ? unix_strangers_ : tcp_strangers_; }
  void make_room(bool is_unix);
  void receive(Descriptor socket, bool is_unix, const sockaddr_storage& from);
  void add(Descriptor socket, bool is_unix, const sockaddr_storage& from);
  enum class Which : std::uint8_t { unix_ones, tcp_ones, all };
  bool want_listeners(Which which, std::uint32_t events);
  void pause_accepting(Which which, std::int64_t until_ns);
  void resume_accepting();
  void serve(ConnectionId id, std::uint32_t events);
  void talk(Connection& connection, std::uint32_t events);
  bool advance(Connection& connection);
  bool read_hello_of(Connection& connection);
  bool read_proof_of(Connection& connection);
  bool read_messages_of(Connection& connection);
  bool follow(Connection& connection, BootstrapMessage& message);
  void welcome(Connection& connection);
  void keep(Rank rank, std::string rank_address);
  void give(Connection& connection, Rank rank);
  void send(Connection& connection, const BootstrapMessage& message) { connection.stream.queue(connection.sealed.seal(message)); }
  void watch(Connection& connection);
  void drop(ConnectionId id, End end);
  void end_slow_handshakes();
  void set_timer();

  Job job_;
  Handshake handshake_;
  std::int64_t handshake_ns_;
  std::vector<Listener> listeners_;
  Descriptor epoll_, timer_;
  // Connections that have not proved themselves, kept apart: whoever comes by TCP takes no room from this host's ranks.
  Strangers unix_strangers_, tcp_strangers_;
  std::unordered_map<ConnectionId, std::unique_ptr<Connection>> connections_;
  ConnectionId next_id_ = kFirstConnection;
  std::deque<ConnectionId> handshakes_;  // in the order of their deadlines; those that are done are skipped
  bool is_accepting_ = true;
  std::int64_t accept_again_ns_ = 0;
  std::int64_t timer_ns_ = 0;  // what it is set to; 0: not
  std::unordered_map<Rank, ConnectionId> members_;
  std::unordered_map<Rank, std::string> rank_addresses_;
  std::unordered_map<Rank, std::vector<ConnectionId>> waiting_;
};

Error failed(const char* call, int code) {
  return make_error(status_of_errno(code), call, "the job's directory", std::strerror(code), {}, errno_code(code));
}

Result<void> BootstrapServer::start() {
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open()) return failed("epoll_create1", errno);
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.is_open()) return failed("timerfd_create", errno);
  std::vector<int> watched{timer_.get()};  // in the order of their numbers
  for (const Listener& listener : listeners_) watched.push_back(listener.socket.get());
  for (std::size_t id = 0; id < watched.size(); ++id) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched[id], &event) != 0) return failed("epoll_ctl", errno);
  }
  return {};
}

Result<void> BootstrapServer::publish(std::string rank_address) {
  if (Result<void> checked = check_rank_address(rank_address, rank_addresses_.contains(job_.rank)); !checked) return checked;
  keep(job_.rank, std::move(rank_address));
  return {};
}

Result<std::optional<std::string>> BootstrapServer::rank_address(Rank rank) {
  if (Result<void> checked = check_rank(job_, rank); !checked) return std::move(checked).error();
  const auto found = rank_addresses_.find(rank);
  return found == rank_addresses_.end() ? std::optional<std::string>() : std::optional(found->second);
}

// Bounded work: what is left keeps the epoll descriptor readable.
Result<void> BootstrapServer::poll() {
  std::array<epoll_event, kMaxEvents> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, 0);
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
  if (count >= 0 && count < kMaxEvents) end_slow_handshakes();
  resume_accepting();
  set_timer();
  return {};
}

void BootstrapServer::accept_some(const Listener& listener) {
  for (int count = 0; count < kMaxAccepts; ++count) {
    // Nobody waits for one who does not come.
    if (strangers_of(listener.is_unix).is_full() && !wait_for(listener.socket.get(), POLLIN, 0)) return;
    // All who have not proved themselves came just now.
    if (strangers_of(listener.is_unix).is_crowded(now_ns()))
      return pause_accepting(listener.is_unix ? Which::unix_ones : Which::tcp_ones, now_ns() + kCrowdPauseNs);
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    Descriptor socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      receive(std::move(socket), listener.is_unix, from);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      const Error told =
          make_error(status_of_errno(errno), "accept", "the job's directory",
                     "ranks that connect have to wait until a descriptor is free", "raise 'ulimit -n'", errno_code(errno));
      return pause_accepting(Which::all, now_ns() + kAcceptPauseNs);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // nobody is left, or one that is gone already
    }
  }
}

// Behind is_crowded().
void BootstrapServer::make_room(bool is_unix) {
  if (!strangers_of(is_unix).is_full()) return;
  if (const auto weakest = strangers_of(is_unix).weakest(now_ns())) drop(*weakest, End::refused);
}

// Who cannot be kept, for want of memory too, is turned away, and will try again where it is a rank.
void BootstrapServer::receive(Descriptor socket, bool is_unix, const sockaddr_storage& from) {
  // Before anybody has to go for it.
  if (is_unix && !is_of_this_user(socket.get())) {
    ++refused_count_;
    return;
  }
  if (!is_unix) prepare_stream(socket.get());
  make_room(is_unix);
  try {
    add(std::move(socket), is_unix, from);
  } catch (const std::bad_alloc&) {
    ++refused_count_;
  }
}

void BootstrapServer::add(Descriptor socket, bool is_unix, const sockaddr_storage& from) {
  const ConnectionId id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    ++refused_count_;
    return;
  }
  const std::int64_t now = now_ns();
  Undo forget([&] {
    strangers_of(is_unix).remove(id);
    connections_.erase(id);  // closes the socket, which takes it out of the epoll set
  });
  connections_.emplace(id, std::make_unique<Connection>(id, is_unix, std::move(socket), now + handshake_ns_));
  strangers_of(is_unix).add(id, source_of(from), now);
  handshakes_.push_back(id);
  forget.call_off();
}

bool BootstrapServer::want_listeners(Which which, std::uint32_t events) {
  for (std::size_t index = 0; index < listeners_.size(); ++index) {
    if (which != Which::all && listeners_[index].is_unix != (which == Which::unix_ones)) continue;
    epoll_event event{};
    event.events = events;
    event.data.u64 = index + 1;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[index].socket.get(), &event) != 0) return false;
  }
  return true;
}

void BootstrapServer::pause_accepting(Which which, std::int64_t until_ns) {
  if (!want_listeners(which, 0)) return;
  accept_again_ns_ = is_accepting_ ? until_ns : std::min(accept_again_ns_, until_ns);
  is_accepting_ = false;
}

void BootstrapServer::resume_accepting() {
  if (is_accepting_ || now_ns() < accept_again_ns_) return;
  is_accepting_ = want_listeners(Which::all, EPOLLIN);
}

void BootstrapServer::serve(ConnectionId id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // dropped by an earlier event of the same look
  try {
    talk(*found->second, events);
  } catch (const std::bad_alloc&) {
    drop(id, End::refused);  // what it said or was to be told is lost
  }
}

void BootstrapServer::talk(Connection& connection, std::uint32_t events) {
  const ConnectionId id = connection.id;
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
bool BootstrapServer::advance(Connection& connection) {
  if (connection.stage == Connection::Stage::hello && !read_hello_of(connection)) return false;
  if (connection.stage == Connection::Stage::proof && !read_proof_of(connection)) return false;
  return connection.stage != Connection::Stage::member || read_messages_of(connection);
}

bool BootstrapServer::read_hello_of(Connection& connection) {
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
  strangers_of(connection.is_unix).has_spoken(connection.id);
  return hello->version == kDirectoryVersion;
}

bool BootstrapServer::read_proof_of(Connection& connection) {
  if (connection.stream.received().size() < kProofBytes) return true;
  const std::string proof(connection.stream.received().substr(0, kProofBytes));
  connection.stream.use(kProofBytes);
  const auto derive = [&](Purpose purpose) { return handshake_.derive(purpose, connection.hello, connection.own_hello); };
  if (!is_proof(derive(Purpose::member_proof), proof)) {
    connection.stream.queue(std::string(kProofBytes, '\0'));
    return false;
  }
  connection.stream.queue(proof_text(derive(Purpose::server_proof)));
  connection.sealed = SealedStream(derive(Purpose::server_sends), derive(Purpose::member_sends));
  if (connection.rank_count != job_.rank_count || connection.rank >= job_.rank_count) {
    send(connection, {BootstrapMessageType::wrong_count, job_.rank_count, {}});
    return false;
  }
  if (connection.rank == job_.rank || members_.contains(connection.rank)) {
    send(connection, {BootstrapMessageType::rank_taken, connection.rank, {}});
    return false;
  }
  welcome(connection);
  return true;
}

void BootstrapServer::welcome(Connection& connection) {
  connection.stage = Connection::Stage::member;
  strangers_of(connection.is_unix).remove(connection.id);
  members_[connection.rank] = connection.id;
  send(connection, {BootstrapMessageType::welcome, connection.rank, {}});
}

bool BootstrapServer::read_messages_of(Connection& connection) {
  while (connection.stream.queued_bytes() < kMaxQueuedBytes) {
    BootstrapMessage message;
    const SealedStream::Found found = connection.sealed.next(connection.stream, message);
    if (found == SealedStream::Found::nothing) return true;
    if (found == SealedStream::Found::broken || !follow(connection, message)) return false;
  }
  return true;
}

// Takes the body where it is kept.
bool BootstrapServer::follow(Connection& connection, BootstrapMessage& message) {
  if (message.type == BootstrapMessageType::publish) {
    keep(connection.rank, std::move(message.body));
    return true;
  }
  if (message.type != BootstrapMessageType::ask || message.rank >= job_.rank_count) return false;
  if (rank_addresses_.contains(message.rank)) {
    give(connection, message.rank);
  } else if (connection.awaited.insert(message.rank).second) {
    waiting_[message.rank].push_back(connection.id);
  }
  return true;
}

// A rank that was started anew brings a new address.
void BootstrapServer::keep(Rank rank, std::string rank_address) {
  rank_addresses_[rank] = std::move(rank_address);
  const auto found = waiting_.find(rank);
  if (found == waiting_.end()) return;
  const std::vector<ConnectionId> waiting = std::move(found->second);
  waiting_.erase(found);
  for (const ConnectionId id : waiting) {
    const auto connection = connections_.find(id);
    if (connection == connections_.end()) continue;
    connection->second->awaited.erase(rank);
    try {
      give(*connection->second, rank);
    } catch (const std::bad_alloc&) {
      ::shutdown(connection->second->stream.descriptor(), SHUT_RDWR);  // it would wait for ever
    }
    // A broken one is told by the next poll.
    static_cast<void>(connection->second->stream.send_queued());
    watch(*connection->second);
  }
}

void BootstrapServer::give(Connection& connection, Rank rank) {
  send(connection, {BootstrapMessageType::rank_address, rank, rank_addresses_[rank]});
}

// A member that asks faster than it takes the answers is not read from.
void BootstrapServer::watch(Connection& connection) {
  const std::size_t queued_bytes = connection.stream.queued_bytes();
  const std::uint32_t events = (queued_bytes > 0 ? EPOLLOUT : 0U) | (queued_bytes < kMaxQueuedBytes ? EPOLLIN : 0U);
  if (events == connection.events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.stream.descriptor(), &event) == 0) connection.events = events;
}

void BootstrapServer::drop(ConnectionId id, End end) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection& connection = *found->second;
  if (connection.stage == Connection::Stage::member) {
    members_.erase(connection.rank);
    for (const Rank rank : connection.awaited) std::erase(waiting_[rank], id);
  } else {
    strangers_of(connection.is_unix).remove(id);
    if (end == End::refused) ++refused_count_;
  }
  connections_.erase(found);  // closes the socket, which takes it out of the epoll set
}

void BootstrapServer::end_slow_handshakes() {
  const std::int64_t now = now_ns();
  while (!handshakes_.empty()) {
    const auto found = connections_.find(handshakes_.front());
    const bool is_pending = found != connections_.end() && found->second->stage != Connection::Stage::member;
    if (is_pending && found->second->deadline_ns > now) return;
    if (is_pending) drop(found->first, End::refused);
    handshakes_.pop_front();
  }
}

void BootstrapServer::set_timer() {
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

Result<std::unique_ptr<Directory>> open_bootstrap_server(const Job& job, std::int64_t handshake_ns) {
  // Nobody could come to an address that is wrong: the other ranks are told so too.
  if (const auto known = master_addresses(job); !known) return known.error();
  auto listeners = listen_as_master(job);
  if (!listeners) return listeners.error();
  auto server = std::make_unique<BootstrapServer>(job, std::move(*listeners), handshake_ns);
  if (Result<void> started = server->start(); !started) return std::move(started).error();
  return std::unique_ptr<Directory>(std::move(server));
}

}  // namespace gigabar::fabric
