// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/directories.hpp"

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "fabric/job/job_key.hpp"

namespace gigabar::fabric {
namespace {

// A job of one rank: nobody else asks.
class LoneDirectory final : public Directory {
 public:
  explicit LoneDirectory(Job job) : job_(std::move(job)) {}

  Result<void> publish(std::string rank_address) override {
    if (Result<void> checked = check_rank_address(rank_address, rank_address_.has_value()); !checked) return checked;
    rank_address_ = std::move(rank_address);
    return {};
  }
  Result<std::optional<std::string>> rank_address(Rank rank) override {
    if (Result<void> checked = check_rank(job_, rank); !checked) return std::move(checked).error();
    return rank_address_;
  }
  Result<void> poll() override { return {}; }
  int wake_descriptor() const noexcept override { return -1; }

 private:
  Job job_;
  std::optional<std::string> rank_address_;
};

}  // namespace

Result<void> check_rank_address(const std::string& rank_address, bool is_published) {
  if (is_published)
    return make_error(Status::invalid_argument, "publish", "address", "this rank's address is in the directory already");
  if (rank_address.size() > kMaxRankAddressBytes)
    return make_error(Status::invalid_argument, "publish", "address",
                      text("it has ", rank_address.size(), " bytes; the most is ", kMaxRankAddressBytes));
  return {};
}

Result<void> check_rank(const Job& job, Rank rank) {
  if (rank < job.rank_count) return {};
  return make_error(Status::out_of_range, "ask for an address", text("rank ", rank),
                    text("the job has ", counted(job.rank_count, "rank")));
}

Result<std::unique_ptr<Directory>> open_directory(const Job& job, std::int64_t deadline_ns) {
  if (Result<void> started = start_sodium(); !started) return std::move(started).error();
  if (job.rank >= job.rank_count)
    return make_error(Status::invalid_argument, "open the directory", text("rank ", job.rank),
                      text("the job has ", counted(job.rank_count, "rank")));
  if (job.rank_count == 1) return std::unique_ptr<Directory>(std::make_unique<LoneDirectory>(job));
  if (job.launcher == Launcher::pmix) return open_pmix_directory(job);
  return job.rank == 0 ? open_bootstrap_server(job) : open_member(job, deadline_ns);
}

}  // namespace gigabar::fabric
