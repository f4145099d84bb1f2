// SPDX-License-Identifier: Apache-2.0
// The directory of every rank but 0: a connection to rank 0's, which holds the addresses.
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/job/handshake.hpp"
#include "fabric/job/interfaces.hpp"
#include "fabric/job/sealed_stream.hpp"
#include "fabric/job/sockets.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::int64_t kFirstPauseNs = 10'000'000;  // between tries; doubles
constexpr std::int64_t kMaxPauseNs = 200'000'000;
constexpr std::int64_t kOneOfManyNs = 5'000'000'000;  // for one address when there are others

struct Connected {
  ByteStream stream;
  SealedStream sealed;
};

// One try. doubtful: said by somebody who has not proved who it is. final: another try would end the same way.
enum class Weight : std::uint8_t { none, doubtful, final };
struct Refused {
  Error error;
  Weight weight = Weight::none;
};

class Member final : public Directory {
 public:
  Member(Job job, Connected connected, std::string name)
      : job_(std::move(job)), name_(std::move(name)), stream_(std::move(connected.stream)), sealed_(std::move(connected.sealed)) {}

  Result<void> start();
  Result<void> publish(std::string rank_address) override;
  Result<std::optional<std::string>> rank_address(Rank rank) override;
  Result<void> poll() override;
  int wake_descriptor() const noexcept override { return epoll_.get(); }

 private:
  void send(const BootstrapMessage& message);
  bool take_messages();
  void fail(const char* cause);
  void watch();
  Error lost_error() const;

  Job job_;
  std::string name_;  // of the bootstrap server
  Descriptor epoll_;
  ByteStream stream_;
  SealedStream sealed_;
  std::uint32_t events_ = 0;
  bool is_published_ = false;
  const char* why_lost_ = nullptr;
  std::unordered_set<Rank> asked_;
  std::unordered_map<Rank, std::string> rank_addresses_;
};

Result<void> Member::start() {
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = events_ = EPOLLIN;
  if (epoll_.is_open() && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream_.descriptor(), &event) == 0) return {};
  const int code = errno;
  return make_error(status_of_errno(code), "epoll", "the job's directory", std::strerror(code), {}, errno_code(code));
}

Result<void> Member::publish(std::string rank_address) {
  if (Result<void> checked = check_rank_address(rank_address, is_published_); !checked) return checked;
  if (why_lost_ != nullptr) return lost_error();
  rank_addresses_[job_.rank] = rank_address;
  is_published_ = true;
  send({BootstrapMessageType::publish, job_.rank, std::move(rank_address)});
  return {};
}

Result<std::optional<std::string>> Member::rank_address(Rank rank) {
  if (Result<void> checked = check_rank(job_, rank); !checked) return std::move(checked).error();
  if (const auto found = rank_addresses_.find(rank); found != rank_addresses_.end()) return std::optional(found->second);
  if (why_lost_ != nullptr) return lost_error();
  if (rank != job_.rank && asked_.insert(rank).second) send({BootstrapMessageType::ask, rank, {}});
  return std::optional<std::string>();
}

// Answers ok when the bootstrap server is gone: addresses that are known stay known, the others' address() tells it.
Result<void> Member::poll() {
  if (why_lost_ != nullptr) return {};
  if (!stream_.send_queued()) fail("its connection broke");
  const bool has_server = stream_.receive(most_sealed_bytes());
  if (!take_messages()) {
    fail("it sent what is no message of the directory");
  } else if (!has_server) {
    fail("it has ended or closed the directory");
  }
  watch();
  return {};
}

void Member::send(const BootstrapMessage& message) {
  stream_.queue(sealed_.seal(message));
  // What is broken is seen by the next poll.
  static_cast<void>(stream_.send_queued());
  watch();
}

bool Member::take_messages() {
  BootstrapMessage message;
  while (true) {
    const SealedStream::Found found = sealed_.next(stream_, message);
    if (found == SealedStream::Found::nothing) return true;
    if (found == SealedStream::Found::broken || message.type != BootstrapMessageType::rank_address ||
        asked_.erase(message.rank) == 0)
      return false;
    rank_addresses_[message.rank] = std::move(message.body);
  }
}

void Member::fail(const char* cause) {
  if (why_lost_ != nullptr) return;
  why_lost_ = cause;
  // Else it would stay readable for ever.
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream_.descriptor(), nullptr));
}

void Member::watch() {
  const std::uint32_t events = EPOLLIN | (stream_.queued_bytes() > 0 ? EPOLLOUT : 0U);
  if (why_lost_ != nullptr || events == events_) return;
  epoll_event event{};
  event.events = events;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream_.descriptor(), &event) == 0) events_ = events;
}

Error Member::lost_error() const {
  return make_error(Status::peer_lost, "ask for an address", text("the directory of rank 0 at ", name_), why_lost_,
                    "start the job anew");
}

// --- Joining ---------------------------------------------------------------------------------------------------------------------

// Exactly `bytes`, or nothing when the bootstrap server ended or the deadline passed.
std::optional<std::string> receive_exactly(ByteStream& stream, std::size_t bytes, std::int64_t deadline_ns) {
  while (stream.received().size() < bytes) {
    if (!wait_for(stream.descriptor(), POLLIN, deadline_ns)) return {};
    if (!stream.receive(bytes) && stream.received().size() < bytes) return {};
  }
  std::string result(stream.received().substr(0, bytes));
  stream.use(bytes);
  return result;
}

Refused no_answer(const std::string& name, std::int64_t deadline_ns) {
  const bool is_late = now_ns() >= deadline_ns;
  return {make_error(is_late ? Status::timed_out : Status::unavailable, "join the directory", name,
                     is_late ? "rank 0 did not answer before the deadline" : "it closed the connection"),
          Weight::none};
}

Refused refuse(Weight weight, Status status, const std::string& name, std::string cause, std::string remedy) {
  return {make_error(status, "join the directory", name, std::move(cause), std::move(remedy)), weight};
}

std::optional<Refused> check_verdict(const BootstrapMessage& verdict, const Job& job, const std::string& name) {
  if (verdict.type == BootstrapMessageType::welcome) return {};
  if (verdict.type == BootstrapMessageType::wrong_count)
    return refuse(Weight::final, Status::invalid_argument, name,
                  text("rank 0 counts ", counted(verdict.rank, "rank"), ", rank ", job.rank, " counts ", job.rank_count),
                  "give every rank the same number of ranks (WORLD_SIZE)");
  return refuse(Weight::final, Status::invalid_argument, name, text("rank ", job.rank, " is there already"),
                "give every process a rank of its own");
}

class Joining {
 public:
  Joining(const Job& job, const SocketAddress& address, Descriptor socket, std::int64_t deadline_ns)
      : job_(job), name_(address.name), stream_(std::move(socket)), deadline_ns_(deadline_ns) {}

  // Nothing when it succeeded: take() gives the connection.
  std::optional<Refused> join() {
    own_hello_ = write_hello(make_hello(job_));
    stream_.queue(own_hello_);
    if (!stream_.send_queued()) return no_answer(name_, deadline_ns_);
    const auto hello = receive_exactly(stream_, kHelloBytes, deadline_ns_);
    if (!hello) return no_answer(name_, deadline_ns_);
    server_hello_ = *hello;
    const auto read = read_hello(server_hello_);
    if (!read)
      return Refused{make_error(Status::unavailable, "join the directory", name_, "what listens there is no directory of a job",
                                "choose another MASTER_PORT, or set GIGABAR_MASTER_PORT at every rank"),
                     Weight::none};
    if (read->version != kDirectoryVersion)
      return refuse(
          Weight::doubtful, Status::not_supported, name_,
          text("rank 0 speaks version ", read->version, " of the directory's protocol, this rank version ", kDirectoryVersion),
          "use the same version of Gigabar at every rank");
    if (read->rank != 0)
      return refuse(Weight::doubtful, Status::no_permission, name_,
                    text("what listens there says that it is rank ", read->rank, ", not 0"),
                    "give every rank the same MASTER_ADDR and MASTER_PORT, those of rank 0");
    return prove();
  }

  Connected take() && { return {std::move(stream_), std::move(sealed_)}; }

 private:
  std::optional<Refused> prove() {
    const Handshake handshake(job_);
    const auto derive = [&](Purpose purpose) { return handshake.derive(purpose, own_hello_, server_hello_); };
    stream_.queue(proof_text(derive(Purpose::member_proof)));
    if (!stream_.send_queued()) return no_answer(name_, deadline_ns_);
    const auto proof = receive_exactly(stream_, kProofBytes, deadline_ns_);
    if (!proof) return no_answer(name_, deadline_ns_);
    if (!is_proof(derive(Purpose::server_proof), *proof))
      return refuse(Weight::doubtful, Status::no_permission, name_,
                    job_.key.is_set() ? "rank 0 holds another job key or none, or is of another job"
                                      : "rank 0 holds a job key and this rank has none, or it is of another job",
                    "give every rank the same GIGABAR_JOB_KEY (and GIGABAR_JOB_ID)");
    sealed_ = SealedStream(derive(Purpose::member_sends), derive(Purpose::server_sends));
    return read_verdict();
  }

  std::optional<Refused> read_verdict() {
    BootstrapMessage verdict;
    while (true) {
      const SealedStream::Found found = sealed_.next(stream_, verdict);
      if (found == SealedStream::Found::message) return check_verdict(verdict, job_, name_);
      if (found == SealedStream::Found::broken)
        return Refused{make_error(Status::unavailable, "join the directory", name_, "it sent what is no message of the directory"),
                       Weight::none};
      const std::size_t before = stream_.received().size();
      if (!wait_for(stream_.descriptor(), POLLIN, deadline_ns_)) return no_answer(name_, deadline_ns_);
      if (!stream_.receive(most_sealed_bytes()) && stream_.received().size() == before) return no_answer(name_, deadline_ns_);
    }
  }

  const Job& job_;
  const std::string& name_;
  ByteStream stream_;
  SealedStream sealed_;
  std::int64_t deadline_ns_;
  std::string own_hello_, server_hello_;
};

using Tried = std::variant<Connected, Refused>;

Tried try_address(const Job& job, const SocketAddress& address, std::int64_t deadline_ns) {
  auto socket = connect_to(address, deadline_ns);
  // With a key another user that has a name does not matter: rank 0 is at the other one.
  const bool is_final =
      socket.status() == Status::out_of_descriptors || (socket.status() == Status::no_permission && !job.key.is_set());
  if (!socket) return Refused{socket.error(), is_final ? Weight::final : Weight::none};
  Joining joining(job, address, std::move(*socket), deadline_ns);
  if (auto refused = joining.join()) return std::move(*refused);
  return std::move(joining).take();
}

Result<std::unique_ptr<Directory>> make_member(const Job& job, Connected connected, const std::string& name) {
  auto member = std::make_unique<Member>(job, std::move(connected), name);
  if (Result<void> started = member->start(); !started) return std::move(started).error();
  return std::unique_ptr<Directory>(std::move(member));
}

constexpr const char* kSameEverywhere =
    "check that rank 0 runs and that MASTER_ADDR, MASTER_PORT and the job's key are the same at every rank";

// What the last try failed with, as the end of all of them.
Error too_late(const Job& job, const Error& last) {
  return make_error(
      Status::timed_out, "join the directory", text("rank 0 at ", name_of_master(job)),
      text("it did not appear before the deadline; the last try: ", last.record().cause,
           job.is_on_one_host ? ". The job counts as one of a single host, whose ranks meet at a Unix socket of their "
                                "network name space"
                              : ""),
      job.is_on_one_host ? text(kSameEverywhere, "; ", kRemedyOfNetworks) : std::string(kSameEverywhere), last.record().native);
}

}  // namespace

Result<std::unique_ptr<Directory>> open_member(const Job& job, std::int64_t deadline_ns) {
  std::int64_t pause_ns = kFirstPauseNs;
  std::int64_t refused_since_ns = 0;  // 0: the last round was not
  while (true) {
    const auto addresses = master_addresses(job);
    if (!addresses) return addresses.error();
    std::optional<Error> failure, refusal;  // of the best address
    for (const SocketAddress& address : *addresses) {
      const bool is_only = addresses->size() == 1;
      Tried tried = try_address(job, address, is_only ? deadline_ns : std::min(deadline_ns, now_ns() + kOneOfManyNs));
      if (auto* connected = std::get_if<Connected>(&tried)) return make_member(job, std::move(*connected), address.name);
      auto& refused = std::get<Refused>(tried);
      // In a job of one host the other end of the Unix socket is this user's process, whatever it has proved.
      const bool is_credible = refused.weight == Weight::doubtful && job.is_on_one_host;
      if (refused.weight == Weight::final || is_credible) return std::move(refused.error);
      std::optional<Error>& told = refused.weight == Weight::doubtful ? refusal : failure;
      if (!told) told = std::move(refused.error);
    }
    const std::int64_t now = now_ns();
    if (!refusal || refused_since_ns == 0) refused_since_ns = refusal ? now : 0;
    const std::int64_t left_ns = deadline_ns - now;
    if (refusal && (now - refused_since_ns >= kDoubtNs || left_ns <= 0)) return std::move(*refusal);
    if (left_ns <= 0) return too_late(job, *failure);
    ::poll(nullptr, 0, static_cast<int>(std::min(pause_ns, left_ns) / 1'000'000 + 1));
    pause_ns = std::min(2 * pause_ns, kMaxPauseNs);
  }
}

}  // namespace gigabar::fabric
