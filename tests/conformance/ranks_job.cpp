// SPDX-License-Identifier: Apache-2.0
// The test's side: starts the ranks, holds their meetings, gathers what they print, and ends them in time.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <sstream>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/options.hpp"
#include "conformance/ranks.hpp"
#include "conformance/ranks_words.hpp"
#include "support/stop_process.hpp"

extern char** environ;

namespace gigabar::test {

namespace {

constexpr std::size_t kMaxOutputBytes = 20000;  // of one rank, kept for the failure's text

std::string random_hex(std::size_t bytes) {
  static std::mt19937 random(std::random_device{}() ^ unsigned(::getpid()));
  std::string text;
  for (std::size_t i = 0; i < 2 * bytes; ++i) text += "0123456789abcdef"[random() % 16];
  return text;
}

// What a launcher, a user or GoogleTest's own caller may have set.
bool is_left_out(std::string_view variable) {
  for (const std::string_view start : {"RANK=",
                                       "WORLD_SIZE=",
                                       "LOCAL_RANK=",
                                       "LOCAL_WORLD_SIZE=",
                                       "MASTER_ADDR=",
                                       "MASTER_PORT=",
                                       "TORCHELASTIC_",
                                       "PMIX_",
                                       "PMI_",
                                       "OMPI_",
                                       "SLURM_",
                                       "GIGABAR_LAUNCHER=",
                                       "GTEST_",
                                       "TEST_",
                                       "GIGABAR_TEST_",
                                       "GIGABAR_JOB_",
                                       "GIGABAR_TRANSPORTS=",
                                       "GIGABAR_RAILS=",
                                       "GIGABAR_STAND_IN=",
                                       "XML_OUTPUT_FILE="}) {
    if (variable.starts_with(start)) return true;
  }
  return false;
}

// GIGABAR_CONFORMANCE_RAILS="rxe0,rxe1": of rank 0, of rank 1, of rank 2 again the first.
std::optional<std::string> rail_of(Rank rank) {
  const std::optional<std::string> list = environment("GIGABAR_CONFORMANCE_RAILS");
  if (!list) return {};
  std::vector<std::string> names;
  std::istringstream text(*list);
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  if (names.empty()) return {};
  return names[rank % names.size()];
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) return std::string("died of ") + strsignal(WTERMSIG(status));
  return "ended with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

struct RankJob::Child {
  pid_t process = -1;
  Descriptor control, output;
  std::string text;
  std::deque<std::string> words;
  bool is_meeting = false;
  bool is_forgiven = false;
  bool has_ended = false;
  int status = 0;
};

RankJob::RankJob(std::string body, RankSetup setup, std::chrono::seconds limit)
    : body_(std::move(body)),
      setup_(std::move(setup)),
      deadline_ns_(now_ns() + std::chrono::nanoseconds(limit).count()),
      limit_(limit),
      master_port_(free_port()),
      key_(random_hex(32)),
      id_(random_hex(8)) {}

RankJob::~RankJob() {
  for (auto& [rank, child] : children_) {
    if (child->has_ended) continue;
    ::kill(child->process, SIGKILL);
    ::waitpid(child->process, &child->status, 0);
  }
}

void RankJob::set_environment(Rank rank, const std::string& name, const char* value) {
  variables_[rank][name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> RankJob::environment_of(Rank rank) const {
  const auto body = bodies_.find(rank);
  std::map<std::string, std::optional<std::string>> set{
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(setup_.rank_count)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(master_port_)},
      {"GIGABAR_JOB_KEY", key_},
      {"GIGABAR_JOB_ID", id_},
      {kBodyVariable, body == bodies_.end() ? body_ : body->second},
      {kRankVariable, std::to_string(rank)},
      {kSetupVariable, setup_.to_text()},
  };
  if (const auto rail = rail_of(rank)) set["GIGABAR_RAILS"] = rail;
  const bool is_gpu = setup_.origin == MemoryChoice::device || setup_.target == MemoryChoice::device;
  if (!is_gpu) set["GIGABAR_STAND_IN"] = "2";
  if (const auto more = variables_.find(rank); more != variables_.end()) {
    for (const auto& [name, value] : more->second) set[name] = value;
  }
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    if (!is_left_out(*variable) && !set.contains(std::string(entry.substr(0, entry.find('='))))) all.emplace_back(entry);
  }
  for (const auto& [name, value] : set) {
    if (value) all.push_back(name + '=' + *value);
  }
  return all;
}

void RankJob::start(Rank rank) {
  std::array<int, 2> control{-1, -1}, output{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control.data()), 0) << std::strerror(errno);
  ASSERT_EQ(::pipe2(output.data(), O_CLOEXEC), 0) << std::strerror(errno);
  const Descriptor its_control(control[1]), its_output(output[1]);
  auto child = std::make_unique<Child>();
  child->control = Descriptor(control[0]);
  child->output = Descriptor(output[0]);

  std::vector<std::string> variables = environment_of(rank);
  variables.push_back(std::string(kControlVariable) + '=' + std::to_string(control[1]));
  std::vector<char*> pointers;
  for (std::string& variable : variables) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  std::string program = "rank", filter = "--gtest_filter=Rank.Body";
  const std::array<char*, 3> arguments{program.data(), filter.data(), nullptr};

  std::fflush(nullptr);
  child->process = ::fork();
  ASSERT_GE(child->process, 0) << std::strerror(errno);
  if (child->process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::fcntl(its_control.get(), F_SETFD, 0);
    ::dup2(its_output.get(), STDOUT_FILENO);
    ::dup2(its_output.get(), STDERR_FILENO);
    ::alarm(unsigned(limit_.count()) + 10);
    ::execve("/proc/self/exe", arguments.data(), pointers.data());
    ::_exit(126);
  }
  ::fcntl(child->output.get(), F_SETFL, O_NONBLOCK);
  children_[rank] = std::move(child);
}

void RankJob::start_all() {
  for (Rank rank = 0; rank < setup_.rank_count; ++rank) start(rank);
}

RankJob::Child* RankJob::child(Rank rank) {
  const auto found = children_.find(rank);
  return found == children_.end() ? nullptr : found->second.get();
}

pid_t RankJob::process(Rank rank) const {
  const auto found = children_.find(rank);
  return found == children_.end() ? -1 : found->second->process;
}

void RankJob::take_output(Child& child) {
  std::array<char, 4096> buffer{};
  while (child.output.is_open()) {
    const ssize_t bytes = ::read(child.output.get(), buffer.data(), buffer.size());
    if (bytes > 0) {
      if (child.text.size() < kMaxOutputBytes) child.text.append(buffer.data(), std::size_t(bytes));
    } else if (bytes == 0) {
      child.output = Descriptor();
    } else if (errno != EINTR) {
      return;
    }
  }
}

void RankJob::take_control(Child& child) {
  std::array<char, 256> buffer{};
  const ssize_t bytes = ::recv(child.control.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes > 0) {
    std::string word(buffer.data(), std::size_t(bytes));
    if (word == kMeet) {
      child.is_meeting = true;
    } else {
      child.words.push_back(std::move(word));
    }
    return;
  }
  // The last holder of its end is gone: the process, or one that it left behind.
  while (::waitpid(child.process, &child.status, 0) < 0 && errno == EINTR) {
  }
  child.has_ended = true;
  child.control = Descriptor();
  take_output(child);
}

void RankJob::hold_meeting() {
  bool is_anyone_waiting = false, is_anyone_gone = false, is_anyone_busy = false;
  for (Rank rank = 0; rank < setup_.rank_count; ++rank) {
    const Child* one = child(rank);
    if (excused_.contains(rank)) continue;
    if (one == nullptr || (!one->is_meeting && !one->has_ended)) {
      is_anyone_busy = true;
    } else if (one->has_ended) {
      is_anyone_gone = true;
    } else {
      is_anyone_waiting = true;
    }
  }
  if (!is_anyone_waiting || (is_anyone_busy && !is_anyone_gone)) return;
  const std::string answer = is_anyone_gone ? kGone : kMet;
  for (auto& [rank, one] : children_) {
    if (!one->is_meeting) continue;
    one->is_meeting = false;
    ::send(one->control.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }
}

bool RankJob::pump(const std::function<bool()>& is_done) {
  while (!is_done()) {
    std::vector<pollfd> waited;
    std::vector<Child*> owners;
    for (auto& [rank, one] : children_) {
      for (const int descriptor : {one->control.get(), one->output.get()}) {
        if (descriptor < 0) continue;
        waited.push_back({descriptor, POLLIN, 0});
        owners.push_back(one.get());
      }
    }
    const std::int64_t left_ns = deadline_ns_ - now_ns();
    if (left_ns <= 0 || waited.empty()) return is_done();
    if (::poll(waited.data(), waited.size(), int(left_ns / 1'000'000) + 1) < 0 && errno != EINTR) return false;
    for (std::size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      if (waited[i].fd == owners[i]->control.get()) {
        take_control(*owners[i]);
      } else {
        take_output(*owners[i]);
      }
    }
    hold_meeting();
  }
  return true;
}

bool RankJob::hear(Rank rank, const std::string& word) {
  Child* one = child(rank);
  if (one == nullptr) return false;
  pump([one] { return !one->words.empty() || one->has_ended; });
  const std::string heard = one->words.empty() ? (one->has_ended ? "its end" : "nothing in time") : one->words.front();
  if (!one->words.empty()) one->words.pop_front();
  if (heard == word) return true;
  ADD_FAILURE() << "waited for \"" << word << "\" of rank " << rank << ", heard " << heard << "\n" << one->text;
  return false;
}

std::optional<std::string> RankJob::word_of(Rank rank) {
  Child* one = child(rank);
  if (one == nullptr || one->words.empty()) return {};
  std::string word = std::move(one->words.front());
  one->words.pop_front();
  return word;
}

void RankJob::tell(Rank rank, const std::string& word) {
  const Child* one = child(rank);
  if (one == nullptr || one->has_ended) return;
  ::send(one->control.get(), word.data(), word.size(), MSG_NOSIGNAL);
}

void RankJob::send_signal(Rank rank, int signal) {
  Child* one = child(rank);
  if (one == nullptr || one->has_ended) return;
  if (signal == SIGKILL) {
    one->is_forgiven = true;
    excuse(rank);
  }
  if (signal == SIGSTOP) {
    EXPECT_TRUE(stop_process(one->process)) << "rank " << rank << " did not stop";
  } else {
    EXPECT_EQ(::kill(one->process, signal), 0) << std::strerror(errno);
  }
}

void RankJob::wait_end(Rank rank) {
  Child* one = child(rank);
  if (one != nullptr) pump([one] { return one->has_ended; });
}

bool RankJob::wait_all() {
  return pump(
      [this] { return std::all_of(children_.begin(), children_.end(), [](const auto& one) { return one.second->has_ended; }); });
}

std::set<Rank> RankJob::forgive_ucx_aborts() {
  wait_all();
  std::set<Rank> aborted;
  for (auto& [rank, one] : children_) {
    take_output(*one);
    // As UCX reports it: "[host:process:number:thread]  file.c:line  Assertion `...' failed".
    const bool is_ucx_abort = one->has_ended && WIFSIGNALED(one->status) && WTERMSIG(one->status) == SIGABRT &&
                              one->text.find(".c:") != std::string::npos && one->text.find("  Assertion `") != std::string::npos;
    if (!is_ucx_abort) continue;
    one->is_forgiven = true;
    aborted.insert(rank);
  }
  return aborted;
}

void RankJob::finish() {
  const bool is_in_time = wait_all();
  for (auto& [rank, one] : children_) {
    take_output(*one);
    const std::string who = "rank " + std::to_string(rank) + " of " + std::to_string(setup_.rank_count) + " ";
    if (!one->has_ended) {
      ADD_FAILURE() << who << "did not end in " << limit_.count() << " s\n" << one->text;
    } else if (!one->is_forgiven && one->status != 0) {
      ADD_FAILURE() << who << ending(one->status) << "\n" << one->text;
    }
  }
  EXPECT_TRUE(is_in_time);
}

void run_ranks(const std::string& body, const RankSetup& setup, std::chrono::seconds limit) {
  RankJob job(body, setup, limit);
  job.start_all();
  job.finish();
}

}  // namespace gigabar::test
