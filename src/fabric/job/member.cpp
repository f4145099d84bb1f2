// SPDX-License-Identifier: Apache-2.0
// The directory of every rank but 0: a channel to rank 0's, which holds the addresses.
#include <poll.h>

#include <unordered_map>
#include <unordered_set>

#include "base/errors.hpp"
#include "base/undo.hpp"
#include "fabric/job/bootstrap.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/job/job_key.hpp"
#include "fabric/job/master.hpp"
#include "secure/endpoint.hpp"

namespace gigabar::fabric {
namespace {

constexpr Rank kServer = 0;
constexpr const char* kSameEverywhere =
    "check that rank 0 runs and that MASTER_ADDR, MASTER_PORT and the job's key are the same at every rank";

class Member final : public Directory, private secure::ChannelEvents {
 public:
  Member(const Job& job, std::unique_ptr<secure::Poller> poller)
      : job_(job), endpoint_(identity_of(job, secure::Purpose::directory), secure::Limits{}, std::move(poller)) {}

  Result<void> join(std::vector<SocketAddress> addresses, std::int64_t deadline_ns);
  Result<void> publish(std::string rank_address) override;
  Result<std::optional<std::string>> rank_address(Rank rank) override;
  // Answers ok when the bootstrap server is gone: addresses that are known stay known, the others' rank_address() tells it.
  Result<void> poll() override {
    endpoint_.poll(*this);
    return {};
  }
  int wake_descriptor() const noexcept override { return endpoint_.wake_descriptor(); }

 private:
  void connected(Rank, bool, std::int64_t) override {}
  void frame(Rank rank, secure::Frame frame) override;
  void lost(Rank, const Error& error) override {
    if (!lost_) lost_ = error;
  }
  Error lost_error() const;

  Job job_;
  std::optional<Error> lost_;
  bool is_published_ = false;
  std::unordered_set<Rank> asked_;
  std::unordered_map<Rank, std::string> rank_addresses_;
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

Result<void> Member::publish(std::string rank_address) {
  if (Result<void> checked = check_rank_address(rank_address, is_published_); !checked) return checked;
  if (lost_) return lost_error();
  const auto own = rank_addresses_.insert_or_assign(job_.rank, std::move(rank_address)).first;
  Undo forget([&] { rank_addresses_.erase(own); });
  Result<void> sent = endpoint_.send(kServer, frame_of(BootstrapMessageType::publish, job_.rank, own->second));
  if (!sent) return sent;
  forget.call_off();
  is_published_ = true;
  return {};
}

Result<std::optional<std::string>> Member::rank_address(Rank rank) {
  if (Result<void> checked = check_rank(job_, rank); !checked) return std::move(checked).error();
  if (const auto found = rank_addresses_.find(rank); found != rank_addresses_.end()) return std::optional(found->second);
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

}  // namespace

Result<std::unique_ptr<Directory>> open_member(const Job& job, std::int64_t deadline_ns) {
  auto addresses = master_addresses(job);
  if (!addresses) return addresses.error();
  auto poller = secure::Poller::open();
  if (!poller) return poller.error();
  auto member = std::make_unique<Member>(job, std::move(*poller));
  if (Result<void> joined = member->join(std::move(*addresses), deadline_ns); !joined) return std::move(joined).error();
  return std::unique_ptr<Directory>(std::move(member));
}

}  // namespace gigabar::fabric
