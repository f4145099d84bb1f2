// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/wireup.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/undo.hpp"
#include "fabric/job/interfaces.hpp"
#include "fabric/job/strangers.hpp"
#include "fabric/wireup/channel.hpp"
#include "fabric/wireup/dial.hpp"
#include "fabric/wireup/greeting.hpp"
#include "fabric/wireup/poller.hpp"
#include "fabric/wireup/rank_address.hpp"
#include "fabric/wireup/settings.hpp"
#include "fabric/wireup/sockets.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
// No descriptor or memory for a connection that waits: looking again at once would be a loop at full speed.
constexpr std::int64_t kAcceptPauseNs = 100 * kMillisecond;
// While many ranks come at once the next ones wait in the listener's queue, as long as those before them may still be about to
// prove who they are.
constexpr std::int64_t kCrowdPauseNs = 5 * kMillisecond;
constexpr std::int64_t kFlushPauseNs = 5 * kMillisecond;
constexpr int kMaxAcceptsPerTurn = 64;
constexpr int kMaxDrainRounds = 64;

// What an event is about: the kind in the first byte, a serial number in the next three, a rank or an index in the last four. The
// serial keeps an event that was fetched before its object went from reaching the next one.
enum class Kind : std::uint8_t { listener, greeting, dial, channel, process };

std::uint64_t token_of(Kind kind, std::uint32_t serial, std::uint32_t number) noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{serial & 0xffffff} << 32 | number;
}
Kind kind_of(std::uint64_t token) noexcept { return static_cast<Kind>(token >> 56); }
std::uint32_t serial_of(std::uint64_t token) noexcept { return static_cast<std::uint32_t>(token >> 32) & 0xffffff; }
std::uint32_t number_of(std::uint64_t token) noexcept { return static_cast<std::uint32_t>(token); }

struct Listener {
  Watched socket;
  bool is_unix = false;
};

class Implementation final : public Wireup {
 public:
  Implementation(Identity identity, const Settings& settings, std::unique_ptr<Poller> poller)
      : identity_(std::move(identity)),
        settings_(settings),
        poller_(std::move(poller)),
        unix_strangers_(settings.most_unfinished, settings.silent_grace_ns, settings.spoken_grace_ns),
        tcp_strangers_(unix_strangers_) {}
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() override;

  Result<void> listen();

  std::string rank_address() const override { return encode(rank_address_); }
  bool is_same_host(const std::string& rank_address) const override;
  Result<void> connect(Rank rank, const std::string& rank_address, std::int64_t deadline_ns) override;
  bool is_connected(Rank rank) const override { return channels_.contains(rank); }
  Result<void> send(Rank rank, Frame frame) override;
  void disconnect(Rank rank) noexcept override;
  bool poll(WireupEvents& events) override;
  int wake_descriptor() const noexcept override { return poller_->descriptor(); }
  const Refusals& refusals() const noexcept override { return refusals_; }
  std::size_t memory_bytes(Rank rank) const override;

 private:
  struct Entry {
    Channel channel;
    std::uint32_t serial;  // of its tokens
    bool is(std::uint64_t token) const noexcept { return serial_of(token) == (serial & 0xffffff); }
  };
  using Greetings = std::map<std::uint32_t, Greeting>;  // by serial number: the oldest first

  bool add_listener(Descriptor socket, bool is_unix);
  void listen_on_tcp(bool is_ipv6, std::uint16_t& port);
  Result<void> check_listeners(int code) const;
  std::vector<Target> targets_of(const RankAddress& rank_address) const;

  void handle(const epoll_event& event, WireupEvents& events);
  void run_timers(WireupEvents& events);
  void arm();
  void wake_soon() { wake_at_ns_ = 0, poller_->wake_at(0); }

  void accept_from(const Listener& listener, WireupEvents& events);
  bool is_welcome(const Listener& listener, int socket, const sockaddr_storage& from, std::int64_t& process, std::string& where);
  void pause_listeners(bool is_unix, std::int64_t pause_ns);
  Greetings::iterator admit(const Listener& listener, Descriptor socket, const sockaddr_storage& from);
  Greetings::iterator greet(Descriptor socket, bool is_unix, std::int64_t process, const std::string& where, std::string source);
  Strangers& strangers_of(bool is_unix) noexcept { return is_unix ? unix_strangers_ : tcp_strangers_; }
  void make_room(bool is_unix);
  void drop(Greetings::iterator greeting);
  void advance_greeting(Greetings::iterator greeting, WireupEvents& events);
  void decide(Greetings::iterator greeting, WireupEvents& events);
  void count(std::uint64_t Refusals::* counter, const std::string& where, const char* why);

  void advance_dial(Rank rank, WireupEvents& events);
  void establish(Rank rank, Established established, WireupEvents& events);
  void flush(Rank rank, Channel& channel);
  void serve(Rank rank, std::uint32_t what, WireupEvents& events);
  void drain(Rank rank, WireupEvents& events);
  void end_when_deaf(Rank rank, WireupEvents& events);

  Identity identity_;
  Settings settings_;
  std::unique_ptr<Poller> poller_;  // outlives all that is watched
  RankAddress rank_address_;
  std::vector<Listener> listeners_;
  std::int64_t accept_again_at_ns_ = kNever;
  // Greetings, kept apart: whoever comes by TCP takes no room from this host's ranks.
  Strangers unix_strangers_, tcp_strangers_;

  std::uint32_t serial_ = 0;
  Greetings greetings_;
  std::map<Rank, Dial> dials_;
  std::map<Rank, Entry> channels_;
  std::set<Rank> look_at_;  // sending failed: what is left to be read is told, then the end
  std::set<Rank> flush_again_;
  std::int64_t flush_again_at_ns_ = kNever;
  std::int64_t now_ns_ = 0;  // of this poll()
  std::int64_t wake_at_ns_ = kNever;
  Refusals refusals_;
  std::unique_ptr<ReadBuffer> buffer_ = std::make_unique<ReadBuffer>();
};

Implementation::~Implementation() {
  if (!poller_->is_owner()) return;  // the channels are the parent's
  while (!channels_.empty()) disconnect(channels_.begin()->first);
}

// --- Listening -------------------------------------------------------------------------------------------------------------------

bool Implementation::add_listener(Descriptor socket, bool is_unix) {
  if (!socket.is_open()) return false;
  const auto index = static_cast<std::uint32_t>(listeners_.size());
  Watched watched(*poller_, std::move(socket), token_of(Kind::listener, 0, index), EPOLLIN);
  if (!watched.is_open()) return false;
  listeners_.push_back({std::move(watched), is_unix});
  return true;
}

// `port` stays 0 when there is no listener.
void Implementation::listen_on_tcp(bool is_ipv6, std::uint16_t& port) {
  std::vector<Address> addresses;
  std::ranges::copy_if(settings_.tcp_addresses, std::back_inserter(addresses),
                       [is_ipv6](const Address& address) { return address.is_ipv6 == is_ipv6; });
  if (addresses.empty()) return;
  for (Descriptor& socket : listen_tcp(addresses, port)) {
    if (!add_listener(std::move(socket), false)) port = 0;
  }
  if (port != 0) rank_address_.addresses.insert(rank_address_.addresses.end(), addresses.begin(), addresses.end());
}

Result<void> Implementation::check_listeners(int code) const {
  if (code == EMFILE || code == ENFILE) {
    return make_error(Status::out_of_descriptors, "wire-up", "listening sockets", std::strerror(code),
                      "raise the limit on open files (ulimit -n)", errno_code(code));
  }
  if (listeners_.empty() || (!settings_.tcp_addresses.empty() && rank_address_.addresses.empty())) {
    return make_error(Status::unavailable, "wire-up", "listening sockets",
                      text(settings_.tcp_addresses.empty() ? "Unix: " : "TCP: ", std::strerror(code)), {}, errno_code(code));
  }
  return {};
}

Result<void> Implementation::listen() {
  int code = 0;
  errno = 0;
  if (settings_.has_unix) {
    std::array<unsigned char, 16> random{};
    std::array<char, 33> name{};
    randombytes_buf(random.data(), random.size());
    sodium_bin2hex(name.data(), name.size(), random.data(), random.size());
    rank_address_.unix_name = text("gigabar-", name.data());
    if (!add_listener(listen_unix(rank_address_.unix_name), true)) {
      code = errno;
      rank_address_.unix_name.clear();
    }
  }
  // IPv4 first: it is what clusters route most often.
  for (const bool is_ipv6 : {false, true}) {
    if (code == EMFILE || code == ENFILE) break;
    errno = 0;
    listen_on_tcp(is_ipv6, is_ipv6 ? rank_address_.ipv6_port : rank_address_.ipv4_port);
    if (errno != 0) code = errno;
  }
  if (Result<void> checked = check_listeners(code); !checked) return checked;
  rank_address_.host = this_host();
  if (rank_address_.addresses.size() > kMaxSocketAddresses) rank_address_.addresses.resize(kMaxSocketAddresses);
  return {};
}

void Implementation::pause_listeners(bool is_unix, std::int64_t pause_ns) {
  for (Listener& listener : listeners_) {
    if (listener.is_unix == is_unix) listener.socket.want(0);
  }
  accept_again_at_ns_ = std::min(accept_again_at_ns_, now_ns_ + pause_ns);
}

// False: turned away. Who is still there after the handshake has the key; here is what does not need it.
bool Implementation::is_welcome(const Listener& listener, int socket, const sockaddr_storage& from, std::int64_t& process,
                                std::string& where) {
  if (listener.is_unix) {
    const auto credentials = credentials_of(socket);
    process = credentials ? credentials->process : 0;
    where = text("unix socket, process ", process);
    if (credentials && credentials->user == ::geteuid()) return true;
    count(&Refusals::another_user, where, "it runs as another user");
    return false;
  }
  where = address_of(from).text();
  set_tcp_options(socket);
  return true;
}

void Implementation::accept_from(const Listener& listener, WireupEvents& events) {
  for (int turn = 0; turn < kMaxAcceptsPerTurn; ++turn) {
    // Nobody waits for one who does not come.
    if (strangers_of(listener.is_unix).is_full() && !is_readable(listener.socket.get())) return;
    if (strangers_of(listener.is_unix).is_crowded(now_ns_)) return pause_listeners(listener.is_unix, kCrowdPauseNs);
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    Descriptor socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      const int code = errno;
      if (code == EAGAIN) return;
      if (code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM) {
        return pause_listeners(listener.is_unix, kAcceptPauseNs);
      }
      continue;  // that connection broke while it waited
    }
    const auto greeting = admit(listener, std::move(socket), from);
    if (greeting != greetings_.end()) advance_greeting(greeting, events);
  }
}

// --- Strangers -------------------------------------------------------------------------------------------------------------------

void Implementation::count(std::uint64_t Refusals::* counter, const std::string& where, const char* why) {
  const std::uint64_t count = ++(refusals_.*counter);
  // Not a line each: who scans ports must not fill the log.
  if (is_logged(LogLevel::info) && std::has_single_bit(count)) {
    log(LogLevel::info, text("wire-up: turned away ", where, ": ", why, " (", count, " of this kind so far)"));
  }
}

// Behind is_crowded().
void Implementation::make_room(bool is_unix) {
  const Strangers& strangers = strangers_of(is_unix);
  if (!strangers.is_full()) return;
  const auto weakest = strangers.weakest(now_ns_);
  if (!weakest) return;
  const auto greeting = greetings_.find(static_cast<std::uint32_t>(*weakest));
  count(&Refusals::crowded_out, greeting->second.where(), "too many unfinished handshakes");
  drop(greeting);
}

// The end: turned away. What there is no memory for concerns nobody but the one that came.
Implementation::Greetings::iterator Implementation::admit(const Listener& listener, Descriptor socket,
                                                          const sockaddr_storage& from) try {
  std::int64_t process = 0;
  std::string where;
  if (!is_welcome(listener, socket.get(), from, process, where)) return greetings_.end();
  make_room(listener.is_unix);
  return greet(std::move(socket), listener.is_unix, process, where, source_of(from));
} catch (const std::bad_alloc&) {
  ++refusals_.no_room;
  return greetings_.end();
}

void Implementation::drop(Greetings::iterator greeting) {
  strangers_of(greeting->second.is_unix()).remove(greeting->first);
  greetings_.erase(greeting);
}

Implementation::Greetings::iterator Implementation::greet(Descriptor socket, bool is_unix, std::int64_t process,
                                                          const std::string& where, std::string source) {
  const std::uint32_t serial = ++serial_;
  Watched watched(*poller_, std::move(socket), token_of(Kind::greeting, 0, serial), EPOLLIN | EPOLLRDHUP);
  if (!watched.is_open()) {
    count(&Refusals::no_room, where, "its socket cannot be watched");
    return greetings_.end();
  }
  const std::int64_t deadline_ns = now_ns_ + settings_.handshake_ns;
  const auto [greeting, is_new] =
      greetings_.try_emplace(serial, identity_, std::move(watched), is_unix, process, where, deadline_ns);
  Undo forget([&, added = greeting] { drop(added); });
  strangers_of(is_unix).add(serial, std::move(source), now_ns_);
  if (!greeting->second.begin()) return greetings_.end();
  forget.call_off();
  return greeting;
}

void Implementation::advance_greeting(Greetings::iterator greeting, WireupEvents& events) {
  const std::string& where = greeting->second.where();
  const Stranger found = greeting->second.advance();
  if (greeting->second.has_said_hello()) strangers_of(greeting->second.is_unix()).has_spoken(greeting->first);
  switch (found) {
    case Stranger::going: return;
    case Stranger::proven: decide(greeting, events); break;
    case Stranger::left: break;
    case Stranger::malformed: count(&Refusals::malformed, where, "what it sent is no handshake"); break;
    case Stranger::wrong_job: count(&Refusals::wrong_job, where, "another job, count of ranks, version or rank"); break;
    case Stranger::wrong_key: count(&Refusals::wrong_key, where, "it does not hold the job's key"); break;
  }
  drop(greeting);
}

// Two ranks that connect to each other at once. The lower one's connection stays when both have come to their proofs: the lower one
// refuses the other from then on, and the higher one accepts and forgets its own, which the lower one cannot have accepted before,
// because it would have given up its own then.
void Implementation::decide(Greetings::iterator greeting, WireupEvents& events) {
  const Rank peer = greeting->second.peer();
  // The end of an older channel may be waiting to be read.
  if (channels_.contains(peer)) drain(peer, events);
  const auto dial = dials_.find(peer);
  const bool is_ours_under_way = dial != dials_.end() && dial->second.has_said_proof() && identity_.rank < peer;
  if (channels_.contains(peer) || is_ours_under_way) return greeting->second.turn_away(Verdict::occupied);
  if (!greeting->second.accept()) return;
  dials_.erase(peer);
  establish(peer, greeting->second.take(), events);
}

// --- Connecting ------------------------------------------------------------------------------------------------------------------

bool Implementation::is_same_host(const std::string& rank_address) const {
  const auto decoded = decode_rank_address(rank_address);
  return decoded && decoded->host == rank_address_.host;
}

std::vector<Target> Implementation::targets_of(const RankAddress& rank_address) const {
  std::vector<Target> targets;
  const bool is_same_host = rank_address.host == rank_address_.host;
  if (is_same_host && settings_.has_unix && !rank_address.unix_name.empty()) targets.push_back(unix_target(rank_address.unix_name));
  if (settings_.tcp_addresses.empty()) return targets;
  for (const Address& address : rank_address.addresses) {
    const std::uint16_t port = address.is_ipv6 ? rank_address.ipv6_port : rank_address.ipv4_port;
    if (port == 0) continue;
    Target target = tcp_target(address, port);
    // Addresses that mean this host here (loopback, a bridge that every host has) are not where a rank of another host is.
    const bool is_own = address.is_loopback() || is_of_this_host({target.address, target.address_bytes, {}});
    if (is_own && !is_same_host) continue;
    targets.push_back(std::move(target));
  }
  return targets;
}

Result<void> Implementation::connect(Rank rank, const std::string& rank_address, std::int64_t deadline_ns) {
  if (rank >= identity_.rank_count || rank == identity_.rank) {
    return make_error(Status::invalid_argument, "connect", text("rank ", rank),
                      text("this is rank ", identity_.rank, " of ", identity_.rank_count));
  }
  const auto decoded = decode_rank_address(rank_address);
  if (!decoded) return decoded.error();
  if (channels_.contains(rank)) return {};
  if (const auto known = dials_.find(rank); known != dials_.end()) {
    known->second.extend(deadline_ns);
    return {};
  }
  std::vector<Target> targets = targets_of(*decoded);
  std::optional<Error> hopeless;
  if (targets.empty() && !identity_.has_key) {
    hopeless =
        make_error(Status::no_permission, "connect", text("rank ", rank),
                   "it is on another host or in another network name space, and the job has no key: only Unix sockets are used",
                   text("set GIGABAR_JOB_KEY to the same secret at every rank; ", kRemedyOfNetworks));
  } else if (targets.empty() && settings_.tcp_addresses.empty()) {
    hopeless = make_error(Status::peer_lost, "connect", text("rank ", rank),
                          "it is on another host or in another network name space, and the job counts as one of a single host",
                          kRemedyOfNetworks);
  } else if (targets.empty()) {
    hopeless = make_error(Status::peer_lost, "connect", text("rank ", rank), "none of its addresses can be reached from here",
                          "see that the hosts have addresses on a common network, and name others with GIGABAR_INTERFACES");
  }
  dials_.try_emplace(rank, identity_, *poller_, token_of(Kind::dial, ++serial_, rank), rank, std::move(targets), deadline_ns,
                     std::move(hopeless));
  wake_soon();
  return {};
}

void Implementation::advance_dial(Rank rank, WireupEvents& events) {
  const auto dial = dials_.find(rank);
  if (dial == dials_.end()) return;
  switch (dial->second.advance(now_ns_)) {
    case Dial::Progress::going: return;
    case Dial::Progress::connected: {
      Established established = dial->second.take();
      dials_.erase(dial);
      establish(rank, std::move(established), events);
      return;
    }
    case Dial::Progress::failed: {
      const Error error = dial->second.error();
      dials_.erase(dial);
      events.lost(rank, error);
      return;
    }
  }
}

void Implementation::establish(Rank rank, Established established, WireupEvents& events) {
  const std::uint32_t serial = ++serial_;
  established.socket.rename(token_of(Kind::channel, serial, rank));
  established.socket.want(EPOLLIN | EPOLLRDHUP);
  // The socket tells the end of the process too, but not while a child that it forked holds a copy.
  Watched process_watch;
  if (established.is_unix && established.process != ::getpid()) {
    Descriptor process = watch_process(static_cast<pid_t>(established.process));
    if (process.is_open()) process_watch = Watched(*poller_, std::move(process), token_of(Kind::process, serial, rank), EPOLLIN);
  }
  const bool is_same_host = established.is_unix;
  const std::int64_t process = established.process;
  channels_.try_emplace(rank, Channel(rank, std::move(established), std::move(process_watch)), serial);
  events.connected(rank, is_same_host, process);
}

// --- Channels --------------------------------------------------------------------------------------------------------------------

Result<void> Implementation::send(Rank rank, Frame frame) {
  const auto entry = channels_.find(rank);
  if (entry == channels_.end()) {
    return make_error(Status::peer_lost, "send frame", text("rank ", rank), "there is no channel to it", "connect to it first");
  }
  Channel& channel = entry->second.channel;
  const bool has_waited = channel.has_queue();
  if (Result<void> sent = channel.send(std::move(frame)); !sent) return sent;
  if (!has_waited) flush(rank, channel);
  return {};
}

void Implementation::flush(Rank rank, Channel& channel) {
  const bool is_full = channel.flush();
  if (channel.is_deaf()) {
    look_at_.insert(rank);
    wake_soon();
  }
  if (is_full) return;
  flush_again_.insert(rank);
  flush_again_at_ns_ = now_ns() + kFlushPauseNs;
  wake_at_ns_ = std::min(wake_at_ns_, flush_again_at_ns_);
  poller_->wake_at(wake_at_ns_);
}

void Implementation::disconnect(Rank rank) noexcept {
  dials_.erase(rank);
  flush_again_.erase(rank);
  const auto entry = channels_.find(rank);
  if (entry == channels_.end()) return;
  entry->second.channel.farewell();
  end_connection(entry->second.channel.socket());
  channels_.erase(entry);
}

void Implementation::serve(Rank rank, std::uint32_t what, WireupEvents& events) {
  Channel& channel = channels_.find(rank)->second.channel;
  if ((what & EPOLLOUT) != 0) flush(rank, channel);
  if (channel.receive(*buffer_, events)) return;
  end_when_deaf(rank, events);
}

// Reads all that has come, as far as it ends.
void Implementation::drain(Rank rank, WireupEvents& events) {
  Channel& channel = channels_.find(rank)->second.channel;
  for (int round = 0; round < kMaxDrainRounds; ++round) {
    if (!channel.receive(*buffer_, events)) return end_when_deaf(rank, events);
  }
}

void Implementation::end_when_deaf(Rank rank, WireupEvents& events) {
  const auto entry = channels_.find(rank);
  if (!entry->second.channel.is_deaf()) return;
  const Fault fault = entry->second.channel.end();
  const Error error = make_error(Status::peer_lost, "channel", text("rank ", rank, " (", entry->second.channel.where(), ")"),
                                 fault.cause, {}, fault.native);
  end_connection(entry->second.channel.socket());
  channels_.erase(entry);
  flush_again_.erase(rank);
  events.lost(rank, error);
}

std::size_t Implementation::memory_bytes(Rank rank) const {
  std::size_t bytes = 0;
  if (const auto entry = channels_.find(rank); entry != channels_.end()) bytes += entry->second.channel.memory_bytes();
  if (const auto dial = dials_.find(rank); dial != dials_.end()) bytes += dial->second.memory_bytes();
  return bytes;
}

// --- Polling ---------------------------------------------------------------------------------------------------------------------

void Implementation::handle(const epoll_event& event, WireupEvents& events) {
  const std::uint64_t token = event.data.u64;
  if (token == Poller::kTimerToken) return;
  const std::uint32_t number = number_of(token);
  switch (kind_of(token)) {
    case Kind::listener: return accept_from(listeners_[number], events);
    case Kind::greeting:
      if (const auto greeting = greetings_.find(number); greeting != greetings_.end()) advance_greeting(greeting, events);
      return;
    case Kind::dial:
      if (const auto dial = dials_.find(number); dial != dials_.end() && dial->second.token() == token)
        advance_dial(number, events);
      return;
    case Kind::channel:
      if (const auto entry = channels_.find(number); entry != channels_.end() && entry->second.is(token)) {
        serve(number, event.events, events);
      }
      return;
    case Kind::process:
      if (const auto entry = channels_.find(number); entry != channels_.end() && entry->second.is(token)) {
        entry->second.channel.process_ended(*buffer_, events);
        end_when_deaf(number, events);
      }
      return;
  }
}

void Implementation::run_timers(WireupEvents& events) {
  while (!greetings_.empty() && greetings_.begin()->second.deadline_ns() <= now_ns_) {
    count(&Refusals::too_slow, greetings_.begin()->second.where(), "it did not finish the handshake in time");
    drop(greetings_.begin());
  }
  if (accept_again_at_ns_ <= now_ns_) {
    accept_again_at_ns_ = kNever;
    for (Listener& listener : listeners_) listener.socket.want(EPOLLIN);
  }
  if (flush_again_at_ns_ <= now_ns_) {
    flush_again_at_ns_ = kNever;
    for (const Rank rank : std::exchange(flush_again_, {})) {
      if (const auto entry = channels_.find(rank); entry != channels_.end()) flush(rank, entry->second.channel);
    }
  }
  for (const Rank rank : std::exchange(look_at_, {})) {
    if (channels_.contains(rank)) serve(rank, 0, events);
  }
  std::vector<Rank> due;
  for (const auto& [rank, dial] : dials_) {
    if (dial.next_ns() <= now_ns_) due.push_back(rank);
  }
  for (const Rank rank : due) advance_dial(rank, events);
}

void Implementation::arm() {
  wake_at_ns_ = std::min(accept_again_at_ns_, flush_again_at_ns_);
  if (!greetings_.empty()) wake_at_ns_ = std::min(wake_at_ns_, greetings_.begin()->second.deadline_ns());
  for (const auto& [rank, dial] : dials_) wake_at_ns_ = std::min(wake_at_ns_, dial.next_ns());
  if (!look_at_.empty()) wake_at_ns_ = 0;
  poller_->wake_at(wake_at_ns_);
}

bool Implementation::poll(WireupEvents& events) {
  std::array<epoll_event, 64> ready;
  const std::size_t count = poller_->take(ready);
  now_ns_ = now_ns();
  if (count == 0 && now_ns_ < wake_at_ns_) return false;
  for (std::size_t index = 0; index < count; ++index) handle(ready[index], events);
  run_timers(events);
  arm();
  return true;
}

}  // namespace

Result<std::unique_ptr<Wireup>> open_wireup(const Job& job, const Settings& settings) {
  auto identity = identity_of(job);
  if (!identity) {
    return make_error(Status::unavailable, "wire-up", "libsodium",
                      "it cannot be initialised: there is no source of random numbers");
  }
  identity->version = settings.version;
  auto poller = Poller::open();
  if (!poller) return std::move(poller).error();
  Settings in_effect = settings;
  if (!identity->has_key) in_effect.tcp_addresses.clear();
  auto wireup = std::make_unique<Implementation>(std::move(*identity), in_effect, std::move(*poller));
  if (Result<void> listening = wireup->listen(); !listening) return std::move(listening).error();
  return std::unique_ptr<Wireup>(std::move(wireup));
}

}  // namespace gigabar::fabric::wireup

namespace gigabar::fabric {

Result<std::unique_ptr<Wireup>> Wireup::open(const Job& job) {
  wireup::Settings settings;
  if (!job.is_on_one_host) {
    const auto addresses = outer_addresses(job);
    if (!addresses) return addresses.error();
    for (const SocketAddress& address : *addresses) settings.tcp_addresses.push_back(wireup::address_of(address.storage));
  }
  return wireup::open_wireup(job, settings);
}

}  // namespace gigabar::fabric
