// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/dial.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kFirstPauseNs = 2 * kMillisecond;
constexpr std::int64_t kLongestPauseNs = 250 * kMillisecond;
// An address where nothing answers (a network that cannot be reached from here, a filter) keeps the next ones waiting.
constexpr std::int64_t kConnectNs = 2000 * kMillisecond;
constexpr std::int64_t kMinConnectNs = 100 * kMillisecond;
// Somebody listens there but does not say hello: a rank that computes, or not a rank at all.
constexpr std::int64_t kHelloNs = 5000 * kMillisecond;
constexpr const char* kNoRank = "what listens there is no rank: it answers something else";

// The listener's queue: the peer has not accepted for long.
bool is_full(const NativeCode& native) { return native.code == EAGAIN; }
bool is_exhausted(const NativeCode& native) {
  return native.code == EMFILE || native.code == ENFILE || native.code == ENOMEM || native.code == ENOBUFS;
}

constexpr const char* kSameKey = "give all ranks of the job the same GIGABAR_JOB_KEY, and no others";

}  // namespace

Dial::Dial(const Identity& identity, Poller& poller, std::uint64_t token, Rank rank, std::vector<Target> targets,
           std::int64_t deadline_ns, std::optional<Error> hopeless)
    : identity_(identity),
      poller_(poller),
      token_(token),
      rank_(rank),
      targets_(std::move(targets)),
      deadline_ns_(deadline_ns),
      pause_ns_(kFirstPauseNs),
      is_final_(hopeless.has_value()),
      final_error_(std::move(hopeless)) {}

void Dial::extend(std::int64_t deadline_ns) noexcept { deadline_ns_ = std::max(deadline_ns_, deadline_ns); }

std::int64_t Dial::next_ns() const noexcept {
  switch (step_) {
    case Step::waiting: return std::min(retry_at_ns_, deadline_ns_);
    case Step::connecting:
    case Step::challenge:
    case Step::hello: return std::min(give_up_at_ns_, deadline_ns_);
    case Step::proof: break;
  }
  return deadline_ns_;
}

std::string Dial::object() const {
  return targets_.empty() ? text("rank ", rank_) : text("rank ", rank_, " at ", targets_[target_index_].text);
}

Dial::Progress Dial::advance(std::int64_t now_ns) {
  now_ns_ = now_ns;
  if (targets_.empty()) return Progress::failed;
  Progress progress = Progress::going;
  switch (step_) {
    case Step::waiting:
      if (now_ns >= retry_at_ns_) progress = start();
      break;
    case Step::connecting: progress = hear_connection(); break;
    case Step::challenge: progress = hear_challenge(); break;
    case Step::hello: progress = hear_hello(); break;
    case Step::proof: progress = hear_proof(); break;
  }
  if (progress != Progress::going || now_ns < deadline_ns_) return progress;
  socket_ = Watched();
  return Progress::failed;
}

Error Dial::error() const {
  if (final_error_ && (is_final_ || doubted_since_ns_ != 0)) return *final_error_;
  std::string cause = last_cause_.empty() ? "it did not answer in time" : text("no connection in time; last: ", last_cause_);
  if (final_error_) cause += text("; before: ", final_error_->record().object, ": ", final_error_->record().cause);
  return make_error(Status::timed_out, "connect", object(), std::move(cause),
                    "see whether the rank runs and can be reached, or give it longer (connect_timeout)", last_native_);
}

Dial::Progress Dial::start() {
  const Target& target = targets_[target_index_];
  step_ = Step::connecting;
  heard_.clear();
  process_ = 0;
  handshake_.emplace(identity_, Role::initiator);
  Descriptor socket = start_connect(target);
  if (!socket.is_open()) return soft_failure(std::strerror(errno), errno_code(errno));
  socket_ = Watched(poller_, std::move(socket), token_, EPOLLOUT);
  if (!socket_.is_open()) return soft_failure(std::strerror(errno), errno_code(errno));
  const std::int64_t share_ns = (deadline_ns_ - now_ns_) / static_cast<std::int64_t>(targets_.size() - target_index_);
  give_up_at_ns_ = now_ns_ + std::clamp(share_ns, kMinConnectNs, kConnectNs);
  return target.is_unix ? hear_connection() : Progress::going;
}

Dial::Progress Dial::hear_connection() {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  int code = 0;
  socklen_t code_bytes = sizeof code;
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &code, &code_bytes);
  if (code != 0) return soft_failure(std::strerror(code), errno_code(code));
  if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) {
    return now_ns_ < give_up_at_ns_ ? Progress::going : soft_failure("nothing answers there");
  }
  if (targets_[target_index_].is_unix) {
    const auto credentials = credentials_of(socket_.get());
    if (!credentials || credentials->user != ::geteuid()) {
      return final_answer(Status::no_permission, "a process of another user listens there", "run all ranks as the same user");
    }
    process_ = credentials->process;
  }
  // The hello needs the challenge; the version, which the prefix tells, does not.
  if (!send_now(socket_.get(), encode(Prefix{identity_.version, Verdict::proceed})))
    return soft_failure(std::strerror(errno), errno_code(errno));
  socket_.want(EPOLLIN | EPOLLRDHUP);
  step_ = Step::challenge;
  give_up_at_ns_ = targets_[target_index_].is_unix ? kNever : now_ns_ + kHelloNs;
  return hear_challenge();
}

std::optional<Dial::Progress> Dial::hear(std::size_t bytes, const char* otherwise) {
  Arrival arrival = read_up_to(socket_.get(), heard_, kPrefixBytes);
  if (arrival != Arrival::complete) return unexpected(arrival);
  const auto prefix = decode_prefix(heard_);
  if (!prefix) return final_answer(Status::no_permission, otherwise, {});
  if (prefix->verdict != Verdict::proceed || prefix->version != identity_.version) return judge(*prefix);
  arrival = read_up_to(socket_.get(), heard_, bytes);
  if (arrival != Arrival::complete) return unexpected(arrival);
  return {};
}

Dial::Progress Dial::hear_challenge() {
  if (const auto progress = hear(kChallengeBytes, kNoRank)) return *progress;
  if (!handshake_->take_challenge(heard_)) return final_answer(Status::no_permission, "its challenge is malformed", {});
  if (!send_now(socket_.get(), std::string_view(handshake_->hello(rank_)).substr(kPrefixBytes)))
    return soft_failure(std::strerror(errno), errno_code(errno));
  heard_.clear();
  step_ = Step::hello;
  return hear_hello();
}

Dial::Progress Dial::unexpected(Arrival arrival) {
  if (arrival == Arrival::failed) return soft_failure(std::strerror(errno), errno_code(errno));
  if (arrival == Arrival::ended) return soft_failure("it closed the connection before it proved who it is");
  return now_ns_ < give_up_at_ns_ || step_ == Step::proof ? Progress::going : soft_failure("it listens but does not answer");
}

// Of a message that does not go on, or is of another version.
Dial::Progress Dial::judge(const Prefix& prefix) {
  if (prefix.version != identity_.version) {
    return final_answer(
        Status::not_supported,
        text("it speaks version ", prefix.version, " of the wire-up protocol, this process version ", identity_.version),
        "use the same version of the library at every rank");
  }
  if (prefix.verdict == Verdict::occupied) return come_back_later();
  return final_answer(Status::no_permission,
                      text("it refused this process: it has another job key, job id or number of ranks, or is not rank ", rank_),
                      kSameKey);
}

Dial::Progress Dial::hear_hello() {
  if (const auto progress = hear(kHelloBytes, kNoRank)) return *progress;
  if (const HelloFault fault = handshake_->take_hello(heard_); fault == HelloFault::key) {
    return final_answer(Status::no_permission, "it does not hold this job's key", kSameKey);
  } else if (fault != HelloFault::none) {
    return final_answer(Status::no_permission, text("what listens there is not rank ", rank_, " of this job"), {});
  }
  if (!send_now(socket_.get(), handshake_->proof())) return soft_failure(std::strerror(errno), errno_code(errno));
  heard_.clear();
  step_ = Step::proof;
  return hear_proof();
}

Dial::Progress Dial::hear_proof() {
  if (const auto progress = hear(kProofBytes, "its proof is malformed")) return *progress;
  if (!handshake_->is_proven(heard_)) {
    return final_answer(Status::no_permission, "it does not hold this job's key", kSameKey);
  }
  return Progress::connected;
}

Established Dial::take() {
  const Target& target = targets_[target_index_];
  std::string where = target.is_unix ? text("unix socket, process ", process_) : target.text;
  return {std::move(socket_), handshake_->session(), target.is_unix, process_, std::move(where)};
}

Dial::Progress Dial::soft_failure(const std::string& cause, NativeCode native) {
  last_cause_ = text(targets_[target_index_].text, ": ", cause);
  last_native_ = std::move(native);
  // A Unix socket that somebody listens at is the peer's: over TCP neither descriptors nor shared memory would be possible. And
  // when this process lacks something, no other address is better.
  const bool is_the_place = targets_[target_index_].is_unix && (step_ > Step::connecting || is_full(last_native_));
  return is_the_place || is_exhausted(last_native_) ? come_back_later() : next_target();
}

Dial::Progress Dial::final_failure(Status status, std::string cause, std::string remedy) {
  // The first address is the best one: its refusal tells most.
  if (!final_error_) final_error_ = make_error(status, "connect", object(), std::move(cause), std::move(remedy));
  ++final_count_;
  return next_target();
}

// The name of a Unix socket is no other process's: what answers there is the rank of the address, and asking elsewhere changes
// nothing.
Dial::Progress Dial::final_answer(Status status, std::string cause, std::string remedy) {
  if (!targets_[target_index_].is_unix) return final_failure(status, std::move(cause), std::move(remedy));
  final_error_ = make_error(status, "connect", object(), std::move(cause), std::move(remedy));
  return fail();
}

Dial::Progress Dial::fail() {
  socket_ = Watched();
  is_final_ = true;
  return Progress::failed;
}

Dial::Progress Dial::next_target() {
  socket_ = Watched();
  if (target_index_ + 1 < targets_.size()) {
    step_ = Step::waiting;
    retry_at_ns_ = 0;
    ++target_index_;
    return now_ns_ < deadline_ns_ ? start() : Progress::going;
  }
  // Over TCP a refusal comes from anybody who answers in the rank's place.
  const bool is_refused = final_count_ == targets_.size();
  if (!is_refused || doubted_since_ns_ == 0) doubted_since_ns_ = is_refused ? now_ns_ : 0;
  if (is_refused && now_ns_ - doubted_since_ns_ >= kDoubtNs) return fail();
  final_count_ = 0;
  target_index_ = 0;
  return come_back_later();
}

Dial::Progress Dial::come_back_later() {
  socket_ = Watched();
  step_ = Step::waiting;
  retry_at_ns_ = now_ns_ + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  return Progress::going;
}

std::size_t Dial::memory_bytes() const noexcept { return sizeof *this + targets_.capacity() * sizeof(Target) + heard_.capacity(); }

}  // namespace gigabar::fabric::wireup
