// SPDX-License-Identifier: Apache-2.0
// Addresses in the store of the job's launcher: put by each rank, fetched when somebody asks.
#include <atomic>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "driver/pmix/pmix.hpp"
#include "fabric/job/directories.hpp"

namespace gigabar::fabric {
namespace {

// Between two questions for an address that was not there.
constexpr std::int64_t kPauseNs = 5'000'000;

class PmixDirectory final : public Directory {
 public:
  PmixDirectory(Job job, std::string key) : job_(std::move(job)), key_(std::move(key)) {}

  Result<void> publish(std::string rank_address) override {
    if (Result<void> checked = check_rank_address(rank_address, is_published_); !checked) return checked;
    // A byte object may not be empty everywhere.
    if (Result<void> put = pmix::put(key_, "c" + rank_address); !put) return put;
    is_published_ = true;
    return {};
  }

  Result<std::optional<std::string>> rank_address(Rank rank) override {
    if (Result<void> checked = check_rank(job_, rank); !checked) return std::move(checked).error();
    Question& question = questions_[rank];
    if (question.rank_address) return question.rank_address;
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
    question.rank_address = bytes.substr(1);
    return question.rank_address;
  }

  Result<void> poll() override { return {}; }  // answers come in a thread of the library's
  int wake_descriptor() const noexcept override { return -1; }

 private:
  struct Question {
    std::optional<std::string> rank_address;  // the answer
    std::optional<pmix::Fetch> fetch;         // none: not asked, or the address was not there
    std::int64_t ask_again_ns = 0;
  };

  Job job_;
  std::string key_;
  bool is_published_ = false;
  std::unordered_map<Rank, Question> questions_;
};

}  // namespace

Result<std::unique_ptr<Directory>> open_pmix_directory(const Job& job) {
  // What was put cannot be taken back: the next directory of the same processes has another name. All ranks open the same number.
  static std::atomic<unsigned> count{0};
  return std::unique_ptr<Directory>(std::make_unique<PmixDirectory>(job, text("gigabar.address.", ++count)));
}

}  // namespace gigabar::fabric
