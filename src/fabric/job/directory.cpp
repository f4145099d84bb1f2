// SPDX-License-Identifier: Apache-2.0
// Where ranks leave their addresses, and how each kind of directory gets them to the others.
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"
#include "driver/pmix/pmix.hpp"
#include "fabric/job/addresses.hpp"
#include "fabric/job/directories.hpp"
#include "secure/endpoint.hpp"

namespace gigabar::fabric {

Result<void> Directory::publish(std::string rank_address) {
  if (rank_addresses_.contains(job_.rank))
    return make_error(Status::invalid_argument, "publish", "address", "this rank's address is in the directory already");
  if (rank_address.size() > kMaxRankAddressBytes)
    return make_error(Status::invalid_argument, "publish", "address",
                      text("it has ", rank_address.size(), " bytes; the most is ", kMaxRankAddressBytes));
  const std::string& own = rank_addresses_[job_.rank] = std::move(rank_address);
  Undo forget([&] { rank_addresses_.erase(job_.rank); });
  Result<void> told = tell(own);
  if (told) forget.call_off();
  return told;
}

Result<std::optional<std::string>> Directory::rank_address(Rank rank) {
  if (rank >= job_.rank_count)
    return make_error(Status::out_of_range, "ask for an address", text("rank ", rank),
                      text("the job has ", counted(job_.rank_count, "rank")));
  if (const auto found = rank_addresses_.find(rank); found != rank_addresses_.end()) return std::optional(found->second);
  return ask(rank);
}

namespace {

constexpr std::size_t kMaxPending = 1024;
constexpr std::size_t kMaxUnanswered = 1 << 20;  // bytes, before a member's further questions have to wait

// Strangers must not take the descriptors that the rest of the process needs.
std::size_t max_pending() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMaxPending;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, kMaxPending);
}

// Rank 0's: all addresses, given out within poll() to ranks that have proved themselves.
class BootstrapServer final : public Directory, private secure::ChannelEvents {
 public:
  BootstrapServer(const Job& job, const secure::Limits& limits, std::unique_ptr<secure::Poller> poller)
      : Directory(job), endpoint_(identity_of(job, secure::Purpose::directory), limits, std::move(poller)) {}

  Result<void> listen();
  Result<void> poll() override try {
    endpoint_.poll(*this);
    return {};
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
  int wake_descriptor() const noexcept override { return endpoint_.wake_descriptor(); }
  std::uint64_t refused_count() const noexcept override { return endpoint_.refusals().total(); }

 private:
  Result<void> tell(const std::string& /*rank_address*/) override {
    give_to_waiting(job_.rank);
    return {};
  }
  void connected(Rank, bool, std::int64_t) override {}
  void frame(Rank rank, secure::Frame frame) override;
  void lost(Rank rank, const Error&) override;
  void give_to_waiting(Rank rank);
  void give(Rank to, Rank rank);

  std::unordered_map<Rank, std::unordered_set<Rank>> waiting_;  // for the address of a rank: those who asked
  secure::Endpoint endpoint_;
};

Result<void> BootstrapServer::listen() {
  auto listeners = listen_as_master(job_);
  if (!listeners) return listeners.error();
  for (Descriptor& listener : *listeners) {
    if (endpoint_.listen(std::move(listener))) continue;
    const int code = errno;
    return make_errno_error(code, "listen", "the job's directory");
  }
  return {};
}

void BootstrapServer::frame(Rank rank, secure::Frame frame) {
  auto message = message_in(frame);
  if (message && message->type == BootstrapMessageType::publish) {
    rank_addresses_[rank] = std::move(message->rank_address);  // a rank that was started anew brings a new one
    give_to_waiting(rank);
  } else if (!message || message->type != BootstrapMessageType::ask || message->rank >= job_.rank_count) {
    endpoint_.cut(rank);  // it is of no more use
  } else if (rank_addresses_.contains(message->rank)) {
    give(rank, message->rank);
  } else {
    waiting_[message->rank].insert(rank);
  }
}

void BootstrapServer::lost(Rank rank, const Error&) {
  for (auto& [awaited, ranks] : waiting_) ranks.erase(rank);
}

void BootstrapServer::give_to_waiting(Rank rank) {
  const auto waiting = waiting_.extract(rank);
  if (waiting.empty()) return;
  for (const Rank one : waiting.mapped()) give(one, rank);
}

void BootstrapServer::give(Rank to, Rank rank) try {
  // A broken channel is told by the next poll.
  static_cast<void>(endpoint_.send(to, frame_of(BootstrapMessageType::answer, rank, rank_addresses_[rank])));
} catch (const std::bad_alloc&) {
  endpoint_.cut(to);  // it would wait for ever
}

constexpr Rank kServer = 0;
constexpr const char* kSameEverywhere =
    "check that rank 0 runs and that MASTER_ADDR, MASTER_PORT and the job's key are the same at every rank";

// Of every rank but 0: a channel to rank 0's, which holds the addresses.
class Member final : public Directory, private secure::ChannelEvents {
 public:
  Member(const Job& job, std::unique_ptr<secure::Poller> poller)
      : Directory(job), endpoint_(identity_of(job, secure::Purpose::directory), secure::Limits{}, std::move(poller)) {}

  Result<void> join(std::vector<SocketAddress> addresses, std::int64_t deadline_ns);
  // Answers ok when the bootstrap server is gone: addresses that are known stay known, the others' rank_address() tells it.
  Result<void> poll() override {
    endpoint_.poll(*this);
    return {};
  }
  int wake_descriptor() const noexcept override { return endpoint_.wake_descriptor(); }

 private:
  Result<void> tell(const std::string& rank_address) override;
  Result<std::optional<std::string>> ask(Rank rank) override;
  void connected(Rank, bool, std::int64_t) override {}
  void frame(Rank rank, secure::Frame frame) override;
  void lost(Rank, const Error& error) override {
    if (!lost_) lost_ = error;
  }
  Error lost_error() const;

  std::optional<Error> lost_;
  std::unordered_set<Rank> asked_;
  secure::Endpoint endpoint_;
};

Result<void> Member::join(std::vector<SocketAddress> addresses, std::int64_t deadline_ns) {
  // While rank 0 is not there yet, the name of its host may get another address.
  const auto refresh = [this] {
    auto now = master_addresses(job_);
    return now ? std::move(*now) : std::vector<SocketAddress>();
  };
  endpoint_.dial(kServer, std::move(addresses), deadline_ns, {}, refresh);
  while (!endpoint_.is_connected(kServer) && !lost_) {
    pollfd entry{endpoint_.wake_descriptor(), POLLIN, 0};
    ::poll(&entry, 1, 1000);
    endpoint_.poll(*this);
  }
  if (!lost_) return {};
  ErrorRecord& record = edit(*lost_);
  record.operation = "join the directory";
  if (record.status != Status::timed_out) return *lost_;
  record.object = text("rank 0 at ", name_of_master(job_));
  record.cause = text("it did not appear before the deadline; ", record.cause);
  record.remedy = kSameEverywhere;
  if (job_.is_on_one_host) {
    record.cause += ". The job counts as one of a single host, whose ranks meet at a Unix socket of their network name space";
    record.remedy += text("; ", kRemedyOfNetworks);
  }
  return *lost_;
}

Result<void> Member::tell(const std::string& rank_address) {
  if (lost_) return lost_error();
  return endpoint_.send(kServer, frame_of(BootstrapMessageType::publish, job_.rank, rank_address));
}

Result<std::optional<std::string>> Member::ask(Rank rank) {
  if (lost_) return lost_error();
  if (rank == job_.rank || asked_.contains(rank)) return std::optional<std::string>();
  // What is busy, or broken, is asked again after the next poll. Noted before: a second answer would be one too many.
  asked_.insert(rank);
  Undo forget([&] { asked_.erase(rank); });
  if (endpoint_.send(kServer, frame_of(BootstrapMessageType::ask, rank))) forget.call_off();
  return std::optional<std::string>();
}

void Member::frame(Rank, secure::Frame frame) {
  auto message = message_in(frame);
  if (message && message->type == BootstrapMessageType::answer && asked_.erase(message->rank) != 0) {
    rank_addresses_[message->rank] = std::move(message->rank_address);
  } else if (!lost_) {
    lost_ = make_error(Status::peer_lost, "channel", "rank 0", "it sent what is no message of the directory");
    endpoint_.cut(kServer);
  }
}

Error Member::lost_error() const {
  return make_error(Status::peer_lost, "ask for an address", text("the directory of rank 0 at ", name_of_master(job_)),
                    lost_->record().cause, "start the job anew", lost_->record().native);
}

// Between two questions for an address that was not there.
constexpr std::int64_t kPauseNs = 5'000'000;

// Addresses in the store of the job's launcher: put by each rank, fetched when somebody asks. The answers come in a thread of the
// library's.
class PmixDirectory final : public Directory {
 public:
  PmixDirectory(const Job& job, std::string key) : Directory(job), key_(std::move(key)) {}

 private:
  // A byte object may not be empty everywhere.
  Result<void> tell(const std::string& rank_address) override { return pmix::put(key_, "c" + rank_address); }

  Result<std::optional<std::string>> ask(Rank rank) override {
    Question& question = questions_[rank];
    if (!question.fetch) {
      if (now_ns() < question.ask_again_ns) return std::optional<std::string>();
      auto fetch = pmix::fetch(rank, key_);
      if (!fetch) return fetch.error();
      question.fetch = std::move(*fetch);
    }
    if (!question.fetch->has_answer()) return std::optional<std::string>();
    auto answer = question.fetch->answer();
    question.fetch.reset();
    question.ask_again_ns = now_ns() + kPauseNs;
    if (!answer || !*answer) return answer;
    const std::string& bytes = **answer;
    if (bytes.empty() || bytes[0] != 'c' || bytes.size() - 1 > kMaxRankAddressBytes)
      return make_error(Status::bad_file, "ask for an address", text("rank ", rank), "what the PMIx store holds is no address");
    return std::optional(rank_addresses_[rank] = bytes.substr(1));
  }

  struct Question {
    std::optional<pmix::Fetch> fetch;  // none: not asked, or the address was not there
    std::int64_t ask_again_ns = 0;
  };

  const std::string key_;
  std::unordered_map<Rank, Question> questions_;
};

std::unique_ptr<Directory> open_pmix_directory(const Job& job) {
  // What was put cannot be taken back: the next directory of the same processes has another name. All ranks open the same number.
  static std::atomic<unsigned> count{0};
  return std::make_unique<PmixDirectory>(job, text("gigabar.address.", ++count));
}

}  // namespace

Result<std::unique_ptr<Directory>> open_bootstrap_server(const Job& job, std::int64_t handshake_ns) {
  // Nobody could come to an address that is wrong: the other ranks are told so too.
  if (const auto known = master_addresses(job); !known) return known.error();
  auto poller = secure::Poller::open();
  if (!poller) return poller.error();
  secure::Limits limits;
  limits.handshake_ns = handshake_ns;
  limits.max_pending_handshakes = max_pending();
  limits.queue = {~std::size_t{0}, kMaxUnanswered};
  auto server = std::make_unique<BootstrapServer>(job, limits, std::move(*poller));
  if (Result<void> listening = server->listen(); !listening) return std::move(listening).error();
  return std::unique_ptr<Directory>(std::move(server));
}

Result<std::unique_ptr<Directory>> open_member(const Job& job, std::int64_t deadline_ns) {
  auto addresses = master_addresses(job);
  if (!addresses) return addresses.error();
  auto poller = secure::Poller::open();
  if (!poller) return poller.error();
  auto member = std::make_unique<Member>(job, std::move(*poller));
  if (Result<void> joined = member->join(std::move(*addresses), deadline_ns); !joined) return std::move(joined).error();
  return std::unique_ptr<Directory>(std::move(member));
}

Result<std::unique_ptr<Directory>> open_directory(const Job& job, std::int64_t deadline_ns) {
  if (Result<void> started = start_sodium(); !started) return std::move(started).error();
  if (job.rank >= job.rank_count)
    return make_error(Status::invalid_argument, "open the directory", text("rank ", job.rank),
                      text("the job has ", counted(job.rank_count, "rank")));
  if (job.rank_count == 1) return std::make_unique<Directory>(job);
  if (job.launcher == Launcher::pmix) return open_pmix_directory(job);
  return job.rank == 0 ? open_bootstrap_server(job) : open_member(job, deadline_ns);
}

}  // namespace gigabar::fabric
