// SPDX-License-Identifier: Apache-2.0
#include "secure/acceptor.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"

namespace gigabar::secure {

struct Heard {
  enum class State : std::uint8_t { going, proven, over } state;
  std::uint64_t Refusals::* counter = nullptr;  // null, of what is over: nothing was wrong
  const char* why = nullptr;
};

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
// No descriptor or memory for a connection that waits: looking again at once would be a loop at full speed.
constexpr std::int64_t kAcceptPauseNs = 100 * kMillisecond;
// While many ranks come at once the next ones wait in the listener's queue, as long as those before them may still be about to
// prove who they are.
constexpr std::int64_t kCrowdPauseNs = 5 * kMillisecond;
constexpr int kMaxAcceptsPerTurn = 64;

using State = Heard::State;
constexpr Heard kGoing{State::going}, kProven{State::proven};
constexpr Heard kLeft{State::over};  // it closed between two messages
constexpr Heard kNameless{State::over, &Refusals::malformed, "it named no connection"};
constexpr Heard kUnexpected{State::over, &Refusals::wrong_job, "it names no connection that is expected"};
constexpr Heard kUnproven{State::over, &Refusals::wrong_key, "it did not prove the key of its connection"};
constexpr Heard kMalformed{State::over, &Refusals::malformed, "what it sent is no handshake"};
constexpr Heard kWrongJob{State::over, &Refusals::wrong_job, "another job, count of ranks, version or rank"};
constexpr Heard kWrongCount{State::over, &Refusals::wrong_job, "it counts other ranks"};
constexpr Heard kOccupied{State::over, &Refusals::wrong_job, "its rank is there already"};
constexpr Heard kWrongKey{State::over, &Refusals::wrong_key, "it does not hold the job's key"};
constexpr Heard kNoMemory{State::over, &Refusals::out_of_memory, "there is no memory for it"};

// True when the other end has closed and nothing is left to be read.
bool is_at_end(int socket) noexcept {
  char byte = 0;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

void log_exhaustion(int code) {
  if (!is_logged(LogLevel::info)) return;
  log(LogLevel::info, text("accept: ", std::strerror(code), ": ranks that connect have to wait",
                           lacks_descriptors(code) ? " until a descriptor is free; raise 'ulimit -n'" : ""));
}

}  // namespace

// --- Who makes room --------------------------------------------------------------------------------------------------------------

std::string source_of(const SocketAddress& address) {
  constexpr std::size_t kNetworkBytes = 8;  // of an IPv6 address; an IPv4 one has fewer
  return std::string(network::ip_bytes(address).substr(0, kNetworkBytes));
}

void PendingLimit::add(Id id, std::string source, std::int64_t now_ns) {
  std::size_t& silent_count = silent_counts_[source];  // where there is no memory for the rest: of nobody, which counts for nothing
  all_.emplace(id, Pending{std::move(source), now_ns, false});
  ++silent_count;
}

void PendingLimit::note_hello(Id id) {
  const auto found = all_.find(id);
  if (found == all_.end() || found->second.has_hello) return;
  found->second.has_hello = true;
  const auto counted = silent_counts_.find(found->second.source);
  if (--counted->second == 0) silent_counts_.erase(counted);
}

void PendingLimit::remove(Id id) {
  note_hello(id);  // it is not silent any more
  all_.erase(id);
}

std::optional<PendingLimit::Id> PendingLimit::weakest(std::int64_t now_ns) const {
  if (all_.empty()) return {};
  std::size_t most = 0;
  for (const auto& [source, count] : silent_counts_) most = std::max(most, count);
  const auto is_of_most = [&](const Pending& one) { return !one.has_hello && silent_counts_.at(one.source) == most; };
  auto found = std::ranges::find_if(all_, [&](const auto& entry) { return is_of_most(entry.second); });
  if (found == all_.end()) found = all_.begin();
  const std::int64_t grace_ns = found->second.has_hello ? grace_after_hello_ns_ : grace_before_hello_ns_;
  if (now_ns - found->second.came_ns < grace_ns) return {};
  return found->first;
}

// --- Listening -------------------------------------------------------------------------------------------------------------------

std::string preamble_of(std::uint64_t number) { return ByteWriter().number(number).take(); }

Acceptor::Acceptor(Poller& poller, const Limits& limits, const Identity* identity) noexcept
    : poller_(poller),
      identity_(identity),
      handshake_ns_(limits.handshake_ns),
      limits_{PendingLimit(limits.max_pending_handshakes, limits.grace_before_hello_ns, limits.grace_after_hello_ns),
              PendingLimit(limits.max_pending_handshakes, limits.grace_before_hello_ns, limits.grace_after_hello_ns)} {}

bool Acceptor::listen(Descriptor socket) {
  if (!socket.is_open()) return false;
  const bool is_unix = own_address_of(socket.get()).is_unix();
  Watched watched(poller_, std::move(socket), listeners_.size(), EPOLLIN);
  if (!watched.is_open()) return false;
  listeners_.push_back({std::move(watched), is_unix});
  return true;
}

std::vector<SocketAddress> Acceptor::listen(std::span<const SocketAddress> addresses) {
  std::vector<SocketAddress> listening;
  int code = 0;
  for (const SocketAddress& address : addresses) {
    Descriptor socket = listen_at(address);
    const std::uint16_t port = socket.is_open() ? network::port_of(own_address_of(socket.get())) : 0;
    if (listen(std::move(socket))) {
      listening.push_back(network::with_port(address, port));
    } else {
      code = errno;
    }
  }
  errno = code;
  return listening;
}

void Acceptor::expect(std::uint64_t number, Identity identity) { expected_.emplace(number, std::move(identity)); }

void Acceptor::forget(std::uint64_t number) noexcept {
  // Their handshakes refer to the identity.
  std::erase_if(pending_, [&](const auto& entry) { return entry.second.number == number; });
  expected_.erase(number);
}

// None can be accepted now: its kind of listener is left alone until then.
void Acceptor::pause(const Listener& listener, std::int64_t until_ns) {
  for (Listener& one : listeners_) {
    if (one.is_unix == listener.is_unix) one.socket.want(EPOLLONESHOT);
  }
  accept_again_at_ns_ = std::min(accept_again_at_ns_, until_ns);
}

// Takes those that wait, until there is no room or a turn is over.
void Acceptor::accept(const Listener& listener, std::int64_t now_ns) {
  const PendingLimit& limit = limits_[listener.is_unix ? 1 : 0];
  for (int turn = 0; turn < kMaxAcceptsPerTurn; ++turn) {
    std::optional<PendingLimit::Id> weakest;  // has to go for the next one
    if (limit.is_full()) {
      // Nobody waits for one who does not come.
      if (!is_readable(listener.socket.get())) return;
      weakest = limit.weakest(now_ns);
      if (!weakest) return pause(listener, now_ns + kCrowdPauseNs);
    }
    SocketAddress from;
    from.bytes = sizeof from.storage;
    Descriptor socket(
        ::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      begin(std::move(socket), listener.is_unix, from, weakest, now_ns);
      continue;
    }
    const int code = errno;
    if (code == EAGAIN) return;
    if (!lacks_resources(code)) continue;  // that connection broke while it waited
    log_exhaustion(code);
    return pause(listener, now_ns + kAcceptPauseNs);
  }
}

// Who is still there after the handshake has the key; here is what does not need it. What there is no memory for concerns nobody
// but the one that came, who will come again where it is a rank.
void Acceptor::begin(Descriptor socket, bool is_unix, const SocketAddress& from, std::optional<PendingLimit::Id> weakest,
                     std::int64_t now_ns) try {
  Connection connection{{}, is_unix, 0, {}};
  if (is_unix) {
    const Credentials credentials = credentials_of(socket.get());
    connection.process = credentials.process;
    connection.where = text("unix socket, process ", credentials.process);
    if (!credentials.is_of_this_user) return refuse(&Refusals::another_user, connection.where, "it runs as another user");
  } else {
    set_tcp_options(socket.get());
    connection.where = network::name_of_address(from);
  }
  if (weakest) {
    const auto found = pending_.find(*weakest);
    refuse(&Refusals::crowded_out, found->second.connection.where, "too many unfinished handshakes");
    pending_.erase(found);
  }
  const std::uint64_t serial = ++serial_;
  connection.socket = Watched(poller_, std::move(socket), serial, EPOLLIN | EPOLLRDHUP);
  if (!connection.socket.is_open()) return refuse(&Refusals::out_of_memory, connection.where, "its socket cannot be watched");
  const auto found = pending_.try_emplace(serial, limits_[is_unix ? 1 : 0], serial, from, now_ns).first;
  Undo forget([&] { pending_.erase(found); });
  Pending& pending = found->second;
  pending.connection = std::move(connection);
  pending.deadline_ns = now_ns + handshake_ns_;
  if (identity_ == nullptr || pending.begin(*identity_)) forget.call_off();
} catch (const std::bad_alloc&) {
  ++refusals_.out_of_memory;
}

// --- Unfinished handshakes -------------------------------------------------------------------------------------------------------

bool Acceptor::Pending::begin(const Identity& identity) {
  handshake.emplace(identity, Role::acceptor);
  return send_now(socket(), handshake->challenge());
}

Heard Acceptor::Pending::missing(Arrival arrival) const {
  if (arrival == Arrival::incomplete) return kGoing;
  if (!handshake) return kNameless;
  // The initiator waits after its prefix too.
  const bool is_between = received.empty() || (!has_sent_hello && received.size() == kPrefixBytes);
  return is_between ? kLeft : kMalformed;
}

Heard Acceptor::Pending::reject(Verdict verdict, Heard why) {
  send_now(socket(), encode(Prefix{handshake->version(), verdict}));
  end_connection(socket());
  return why;
}

Heard Acceptor::Pending::read() {
  // The prefix alone tells a stranger, and the number of another version, whose hello may have another length.
  Arrival arrival = read_up_to(socket(), received, kPrefixBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  const auto prefix = decode_prefix(received);
  if (!prefix || prefix->verdict != Verdict::proceed) return kMalformed;
  if (prefix->version != handshake->version()) return has_sent_hello ? kMalformed : reject(Verdict::version, kWrongJob);
  arrival = read_up_to(socket(), received, has_sent_hello ? kProofBytes : kHelloBytes);
  if (arrival != Arrival::complete) return missing(arrival);
  if (has_sent_hello) return handshake->take_proof(received) ? kProven : reject(Verdict::refused, kWrongKey);
  const HelloFault fault = handshake->take_hello(received);
  if (fault == HelloFault::malformed) return kMalformed;
  if (fault != HelloFault::none) return reject(Verdict::refused, fault == HelloFault::key ? kWrongKey : kWrongJob);
  if (!send_now(socket(), handshake->hello(handshake->peer()))) return kLeft;
  has_sent_hello = true;
  limit.note_hello(serial);
  received.clear();
  return read();
}

// Reads what is there and answers it.
Heard Acceptor::read(Pending& pending) {
  if (!pending.handshake) {
    const Arrival arrival = read_up_to(pending.socket(), pending.received, kPreambleBytes);
    if (arrival != Arrival::complete) return pending.missing(arrival);
    pending.number = ByteReader(std::exchange(pending.received, {})).number<std::uint64_t>();
    const auto expected = expected_.find(pending.number);
    if (expected == expected_.end()) return kUnexpected;
    if (!pending.begin(expected->second)) return kLeft;
  }
  return pending.read();
}

// `proven`: it was told to proceed.
Heard Acceptor::say_verdict(Pending& pending, const Judge& judge) {
  const Verdict verdict = judge ? judge(pending.handshake->peer(), pending.handshake->peer_rank_count()) : Verdict::proceed;
  // It may have given up while it waited: then there is nobody to have a channel with.
  const bool is_told = !is_at_end(pending.socket()) && send_now(pending.socket(), pending.handshake->proof(verdict));
  if (verdict == Verdict::proceed) return is_told ? kProven : kLeft;
  end_connection(pending.socket());
  if (verdict == Verdict::wrong_count) return kWrongCount;
  return identity_->purpose == Purpose::directory ? kOccupied : kLeft;
}

std::optional<ProvenConnection> Acceptor::handle(std::uint64_t token, std::int64_t now_ns, const Judge& judge) {
  if (token < listeners_.size()) return accept(listeners_[token], now_ns), std::nullopt;
  const auto found = pending_.find(token);
  if (found == pending_.end()) return {};
  auto proven = advance(found, judge);
  if (proven && identity_ == nullptr) forget(proven->number);  // the first that proves the key has the number
  return proven;
}

std::optional<ProvenConnection> Acceptor::advance(AllPending::iterator found, const Judge& judge) {
  Pending& pending = found->second;
  Heard heard = kNoMemory;
  try {
    heard = read(pending);
  } catch (const std::bad_alloc&) {
  }
  if (heard.state == State::going) return {};
  const Undo done([&] { pending_.erase(found); });
  if (heard.state == State::proven) heard = say_verdict(pending, judge);
  if (heard.state == State::proven)
    return ProvenConnection{pending.number, pending.handshake->peer(), pending.handshake->establish(std::move(pending.connection))};
  // Who has named a connection has to prove its key, whatever else happened.
  if (identity_ == nullptr && pending.handshake && heard.counter != &Refusals::out_of_memory) heard = kUnproven;
  if (heard.counter != nullptr) refuse(heard.counter, pending.connection.where, heard.why);
  return {};
}

// Not a line each: who scans ports must not fill the log.
void Acceptor::refuse(std::uint64_t Refusals::* counter, const std::string& where, const char* why) noexcept {
  const std::uint64_t count = ++(refusals_.*counter);
  if (!is_logged(LogLevel::info) || !std::has_single_bit(count)) return;
  quietly([&] { log(LogLevel::info, text("turned away ", where, ": ", why, " (", count, " of this kind so far)")); });
}

void Acceptor::run_timers(std::int64_t now_ns, bool is_more) {
  // Only when nothing that has come is left unread: the time may have been ours, between two polls.
  while (!is_more && !pending_.empty() && pending_.begin()->second.deadline_ns <= now_ns) {
    refuse(&Refusals::too_slow, pending_.begin()->second.connection.where, "it did not finish the handshake in time");
    pending_.erase(pending_.begin());
  }
  if (accept_again_at_ns_ > now_ns) return;
  accept_again_at_ns_ = kNever;
  for (Listener& listener : listeners_) listener.socket.want(EPOLLIN);
}

std::int64_t Acceptor::next_ns() const noexcept {
  return pending_.empty() ? accept_again_at_ns_ : std::min(accept_again_at_ns_, pending_.begin()->second.deadline_ns);
}

}  // namespace gigabar::secure
