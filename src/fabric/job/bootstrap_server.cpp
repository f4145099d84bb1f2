// SPDX-License-Identifier: Apache-2.0
// Rank 0's directory: all addresses, given out within poll() to ranks that have proved themselves.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "base/errors.hpp"
#include "fabric/job/bootstrap.hpp"
#include "fabric/job/directories.hpp"
#include "fabric/job/job_key.hpp"
#include "fabric/job/master.hpp"
#include "secure/endpoint.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kMaxPending = 1024;
constexpr std::size_t kMaxUnanswered = 1 << 20;  // bytes, before a member's further questions have to wait

// Strangers must not take the descriptors that the rest of the process needs.
std::size_t max_pending() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMaxPending;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, kMaxPending);
}

class BootstrapServer final : public Directory, private secure::ChannelEvents {
 public:
  BootstrapServer(const Job& job, const secure::Limits& limits, std::unique_ptr<secure::Poller> poller)
      : job_(job), endpoint_(identity_of(job, secure::Purpose::directory), limits, std::move(poller)) {}

  Result<void> listen();
  Result<void> publish(std::string rank_address) override;
  Result<std::optional<std::string>> rank_address(Rank rank) override;
  Result<void> poll() override try {
    endpoint_.poll(*this);
    return {};
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
  int wake_descriptor() const noexcept override { return endpoint_.wake_descriptor(); }
  std::uint64_t refused_count() const noexcept override { return endpoint_.refusals().total(); }

 private:
  void connected(Rank, bool, std::int64_t) override {}
  void frame(Rank rank, secure::Frame frame) override;
  void lost(Rank rank, const Error&) override;
  bool follow(Rank rank, std::optional<BootstrapMessage> message);
  void keep(Rank rank, std::string rank_address);
  void give(Rank to, Rank rank);

  Job job_;
  std::unordered_map<Rank, std::string> rank_addresses_;
  std::unordered_map<Rank, std::unordered_set<Rank>> waiting_;  // for the address of a rank: those who asked
  secure::Endpoint endpoint_;
};

Result<void> BootstrapServer::listen() {
  auto listeners = listen_as_master(job_);
  if (!listeners) return listeners.error();
  for (Descriptor& listener : *listeners) {
    if (endpoint_.listen(std::move(listener))) continue;
    const int code = errno;
    return make_error(status_of_errno(code), "listen", "the job's directory", std::strerror(code), {}, errno_code(code));
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

void BootstrapServer::frame(Rank rank, secure::Frame frame) {
  if (!follow(rank, message_in(frame))) endpoint_.cut(rank);
}

void BootstrapServer::lost(Rank rank, const Error&) {
  for (auto& [awaited, ranks] : waiting_) ranks.erase(rank);
}

// False: it is of no more use.
bool BootstrapServer::follow(Rank rank, std::optional<BootstrapMessage> message) {
  if (!message) return false;
  if (message->type == BootstrapMessageType::publish) {
    keep(rank, std::move(message->rank_address));
    return true;
  }
  if (message->type != BootstrapMessageType::ask || message->rank >= job_.rank_count) return false;
  if (rank_addresses_.contains(message->rank)) {
    give(rank, message->rank);
  } else {
    waiting_[message->rank].insert(rank);
  }
  return true;
}

// A rank that was started anew brings a new address.
void BootstrapServer::keep(Rank rank, std::string rank_address) {
  rank_addresses_[rank] = std::move(rank_address);
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

}  // namespace gigabar::fabric
