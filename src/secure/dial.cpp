// SPDX-License-Identifier: Apache-2.0
#include "secure/dial.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"

namespace gigabar::secure {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kFirstPauseNs = 2 * kMillisecond;
constexpr std::int64_t kLongestPauseNs = 250 * kMillisecond;
// An address where nothing answers (a network that cannot be reached from here, a filter) keeps the next ones waiting.
constexpr std::int64_t kConnectNs = 2000 * kMillisecond;
constexpr std::int64_t kMinConnectNs = 100 * kMillisecond;
// Somebody listens there but does not say hello: a rank that computes, or not a rank at all. In the first round; see hello_ns_.
constexpr std::int64_t kHelloNs = 5000 * kMillisecond;

constexpr const char* kSameKey = "give all ranks of the job the same GIGABAR_JOB_KEY (and GIGABAR_JOB_ID), and no others";
constexpr const char* kRightPort =
    "see what listens at that address: it is not the peer, or something on the way redirects connections";
constexpr const char* kSameMaster = "give every rank the same MASTER_ADDR and MASTER_PORT, those of rank 0";

}  // namespace

Dial::Dial(const Identity& identity, Poller& poller, std::uint64_t token, Rank rank, std::vector<SocketAddress> targets,
           std::int64_t deadline_ns, std::optional<Error> no_target_error, Refresh refresh)
    : identity_(identity),
      poller_(poller),
      token_(token),
      rank_(rank),
      shown_rank_(rank),
      targets_(std::move(targets)),
      refresh_(std::move(refresh)),
      deadline_ns_(deadline_ns),
      pause_ns_(kFirstPauseNs),
      hello_ns_(kHelloNs),
      failure_(std::move(no_target_error)) {}

std::string Dial::object() const {
  return targets_.empty() ? text("rank ", shown_rank_) : text("rank ", shown_rank_, " at ", target().name);
}

Dial::Progress Dial::advance(std::int64_t now_ns) {
  now_ns_ = now_ns;
  if (targets_.empty()) return Progress::failed;
  Progress progress = Progress::going;
  // What was read and not answered would be waited for.
  Undo again([&] { come_back_later(); });
  switch (step_) {
    case Step::waiting:
      if (now_ns >= next_at_ns_) progress = start();
      break;
    case Step::connecting: progress = check_connection(); break;
    case Step::challenge:
    case Step::hello:
    case Step::proof: progress = read(); break;
  }
  again.call_off();
  if (progress != Progress::going || now_ns < deadline_ns_) return progress;
  connection_ = {};
  return Progress::failed;
}

Error Dial::error() const {
  if (failure_) return *failure_;
  if (refusal_ && is_refused_) return *refusal_;
  std::string cause = last_cause_.empty() ? "it did not answer in time" : text("no connection in time; last: ", last_cause_);
  if (refusal_) cause += text("; before: ", refusal_->record().object, ": ", refusal_->record().cause);
  const bool is_full = lacks_descriptors(last_code_);
  return make_error(is_full ? Status::out_of_descriptors : Status::timed_out, "connect", object(), std::move(cause),
                    is_full ? "raise the limit on open files (ulimit -n)"
                            : "see whether the rank runs and can be reached, or give it longer (connect_timeout)",
                    last_code_ != 0 ? errno_code(last_code_) : NativeCode());
}

Dial::Progress Dial::start() {
  step_ = Step::connecting;
  received_.clear();
  handshake_.emplace(identity_, Role::initiator);
  Descriptor socket = start_connect(target());
  if (!socket.is_open()) return soft_failure(errno);
  Watched watched(poller_, std::move(socket), token_, EPOLLOUT);
  if (!watched.is_open()) return soft_failure(errno);
  connection_ = {std::move(watched), target().is_unix(), 0, target().name};
  const std::int64_t share_ns = (deadline_ns_ - now_ns_) / static_cast<std::int64_t>(targets_.size() - target_index_);
  next_at_ns_ = now_ns_ + std::clamp(share_ns, kMinConnectNs, kConnectNs);
  return target().is_unix() ? check_connection() : Progress::going;
}

Dial::Progress Dial::check_connection() {
  const int code = connection_code(connection_.socket.get());
  if (code == EINPROGRESS) return now_ns_ < next_at_ns_ ? Progress::going : soft_failure("nothing answers there");
  if (code != 0) return soft_failure(code);
  if (target().is_unix()) {
    const Credentials credentials = credentials_of(connection_.socket.get());
    if (!credentials.is_of_this_user) return another_user();
    connection_.process = credentials.process;
    connection_.where = text("unix socket, process ", credentials.process);
  }
  // The hello needs the challenge; the version, which the prefix tells, does not.
  if (!send_now(connection_.socket.get(), preamble_ + encode(Prefix{identity_.version, Verdict::proceed})))
    return soft_failure(errno);
  connection_.socket.want(EPOLLIN | EPOLLRDHUP);
  step_ = Step::challenge;
  next_at_ns_ = is_first_unix_socket() ? kNever : now_ns_ + hello_ns_;
  return read();
}

Dial::Progress Dial::another_user() {
  constexpr const char* kCause = "a process of another user listens there";
  if (!is_of_directory()) return refused(kCause, "run all ranks as the same user");
  // With a key another user that has a name does not matter: rank 0 is at the other one.
  if (identity_.has_key) return soft_failure(kCause);
  return refused(kCause,
                 "run all ranks as the same user; where another user takes the name on purpose, set GIGABAR_JOB_KEY: nobody can "
                 "tell the name without it");
}

// Reads what has come, and answers it.
Dial::Progress Dial::read() {
  Arrival arrival = read_up_to(connection_.socket.get(), received_, kPrefixBytes);
  if (arrival != Arrival::complete) return unexpected(arrival);
  const auto prefix = decode_prefix(received_);
  if (!prefix && is_of_directory()) return soft_failure("what listens there is no directory of a job");
  if (!prefix) return refused("what listens there is no rank: it answers something else");
  // Other verdicts come with the proof, or are nobody's.
  const bool is_refused = prefix->verdict == Verdict::refused || prefix->verdict == Verdict::version;
  if (prefix->version != identity_.version || is_refused || (prefix->verdict != Verdict::proceed && step_ != Step::proof))
    return judge_unproven(*prefix);
  arrival = read_up_to(connection_.socket.get(), received_, message_bytes());
  if (arrival != Arrival::complete) return unexpected(arrival);

  if (step_ == Step::proof) return handshake_->take_proof(received_) ? judge_proven() : refused_for_key();
  std::string answer;
  if (step_ == Step::challenge) {
    handshake_->take_challenge(received_);  // its prefix is good
    answer = handshake_->hello(rank_).substr(kPrefixBytes);
  } else {
    const HelloFault fault = handshake_->take_hello(received_);
    if (fault != HelloFault::none) return judge_hello(fault);
    answer = handshake_->proof();
  }
  if (!send_now(connection_.socket.get(), answer)) return soft_failure(errno);
  received_.clear();
  if (step_ == Step::hello) next_at_ns_ = kNever;
  step_ = step_ == Step::challenge ? Step::hello : Step::proof;
  return read();
}

Dial::Progress Dial::unexpected(Arrival arrival) {
  if (arrival == Arrival::failed) return soft_failure(errno);
  if (arrival == Arrival::ended) return soft_failure("it closed the connection before it proved who it is");
  if (now_ns_ < next_at_ns_) return Progress::going;
  was_silent_ = true;
  return soft_failure("it listens but does not answer");
}

// Of a message that does not go on, or is of another version. Anybody may have said it.
Dial::Progress Dial::judge_unproven(const Prefix& prefix) {
  if (prefix.version != identity_.version) {
    return refused(
        text("it speaks version ", prefix.version, " of the protocol between ranks, this process version ", identity_.version),
        "use the same version of Gigabar at every rank", Status::not_supported);
  }
  if (is_of_link()) return refused("it refused this process: it expects no such link, or another secret", kRightPort);
  return refused(text("it refused this process: ",
                      identity_.has_key ? "it has another job key or none" : "it has a job key and this rank has none",
                      ", or is of another job", is_of_directory() ? "" : text(", counts other ranks or is not rank ", rank_)),
                 kSameKey);
}

// It holds the key, and says what is so.
Dial::Progress Dial::judge_proven() {
  const Rank rank_count = handshake_->peer_rank_count();
  if (rank_count != identity_.rank_count) {
    return fail(
        Status::invalid_argument,
        text("rank ", rank_, " counts ", counted(rank_count, "rank"), ", rank ", identity_.rank, " counts ", identity_.rank_count),
        "give every rank the same number of ranks (WORLD_SIZE)");
  }
  if (handshake_->verdict() == Verdict::proceed) return Progress::connected;
  if (!is_of_directory()) return come_back_later();  // it connects to this rank itself
  // It may be the one before, whose host is gone: rank 0 learns that after about 20 s.
  return refused(text("rank ", identity_.rank, " is there already"), "give every process a rank of its own",
                 Status::invalid_argument);
}

Dial::Progress Dial::judge_hello(HelloFault fault) {
  if (fault == HelloFault::key || is_of_link()) return refused_for_key();
  if (fault != HelloFault::rank) return refused(text("what listens there is not rank ", rank_, " of this job"));
  return refused(text("what listens there says that it is rank ", rank_in_hello(received_), ", not ", rank_), kSameMaster);
}

Dial::Progress Dial::refused_for_key() {
  if (is_of_link()) return refused("it does not hold the secret of this link", kRightPort);
  return refused("it does not hold this job's key", kSameKey);
}

Established Dial::take() {
  step_ = Step::waiting;
  next_at_ns_ = now_ns_ + pause_ns_;
  return handshake_->establish(std::move(connection_));
}

Dial::Progress Dial::soft_failure(int code) { return soft_failure(std::strerror(code), code); }

Dial::Progress Dial::soft_failure(const std::string& cause, int code) {
  // Where somebody listens at the peer's own Unix socket, though its queue is full (EAGAIN): over TCP neither descriptors nor
  // shared memory would be possible. And when this process lacks something, no other address is better.
  const bool is_there = is_first_unix_socket() && (step_ > Step::connecting || code == EAGAIN);
  // The first address is the best one.
  if (target_index_ <= told_index_) {
    told_index_ = target_index_;
    last_cause_ = text(target().name, ": ", cause);
    last_code_ = code;
  }
  return is_there || lacks_resources(code) ? come_back_later() : next_target();
}

// Over TCP anybody may have answered, so it is no more than a hint. The peer's own Unix socket is no other process's: asking
// elsewhere changes nothing.
Dial::Progress Dial::refused(std::string cause, std::string remedy, Status status) {
  if (is_peers_own_socket()) return fail(status, std::move(cause), std::move(remedy));
  if (!refusal_) refusal_ = make_error(status, "connect", object(), std::move(cause), std::move(remedy));
  ++refusal_count_;
  return next_target();
}

Dial::Progress Dial::fail(Status status, std::string cause, std::string remedy) {
  failure_ = make_error(status, "connect", object(), std::move(cause), std::move(remedy));
  connection_ = {};
  return Progress::failed;
}

Dial::Progress Dial::next_target() {
  connection_ = {};
  if (target_index_ + 1 < targets_.size()) {
    step_ = Step::waiting;
    next_at_ns_ = 0;
    ++target_index_;
    return now_ns_ < deadline_ns_ ? start() : Progress::going;
  }
  // Rank 0 listens at one of a directory's addresses.
  is_refused_ = is_of_directory() ? refusal_count_ > 0 : refusal_count_ == targets_.size();
  refusal_count_ = 0;
  if (std::exchange(was_silent_, false)) hello_ns_ *= 2;
  target_index_ = 0;
  const Progress progress = come_back_later();
  // A name may stand for another address than before.
  std::vector<SocketAddress> fresh = refresh_ ? refresh_() : std::vector<SocketAddress>();
  if (!fresh.empty()) targets_ = std::move(fresh);
  return progress;
}

Dial::Progress Dial::come_back_later() {
  connection_ = {};
  step_ = Step::waiting;
  next_at_ns_ = now_ns_ + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  return Progress::going;
}

std::size_t Dial::memory_bytes() const noexcept {
  return sizeof *this + targets_.capacity() * sizeof(SocketAddress) + received_.capacity();
}

}  // namespace gigabar::secure
