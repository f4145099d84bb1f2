// SPDX-License-Identifier: Apache-2.0
#include "run/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::run {
namespace {

// The rank that fails first may only be the one that heard of another's failure: that one gets time to say what it was.
constexpr double kLastWordsSeconds = 0.25;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kSignals = std::numeric_limits<std::uint64_t>::max();

std::int64_t after_seconds(double seconds) { return now_ns() + static_cast<std::int64_t>(seconds * 1e9); }

// Signals that come as bytes of a descriptor while this lives.
class SignalDescriptor {
 public:
  SignalDescriptor() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      // One that is ignored (a job of nohup, or in the background of a script) stays ignored.
      struct sigaction now{};
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
    }
    ::sigprocmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = Descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_.is_open()) fail(fmt::format("cannot wait for signals: {}", std::strerror(errno)));
  }
  ~SignalDescriptor() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalDescriptor(const SignalDescriptor&) = delete;
  SignalDescriptor& operator=(const SignalDescriptor&) = delete;

  int get() const noexcept { return descriptor_.get(); }
  std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return {};
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

// Labels take two descriptors of each rank.
rlimit raise_descriptor_limit(bool is_needed) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  if (is_needed) ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

constexpr std::size_t kMaxLineBytes = 65536;

// A target that is gone ends nothing here: the signal of a broken pipe has, unless it is ignored.
void write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(target, text.data(), text.size());
    if (bytes >= 0) {
      text.remove_prefix(static_cast<std::size_t>(bytes));
    } else if (errno == EAGAIN) {
      pollfd entry{target, POLLOUT, 0};
      ::poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// One stream of one rank, each line with the rank before it. Lines go out whole, so that those of different ranks do not mix; one
// of more than 64 KiB is cut.
class LabelledStream {
 public:
  // `source` is made non-blocking. `target` is this process's standard output or standard error.
  LabelledStream(Descriptor source, int target, unsigned rank)
      : source_(std::move(source)), target_(target), label_(fmt::format("[{}] ", rank)) {
    ::fcntl(source_.get(), F_SETFL, ::fcntl(source_.get(), F_GETFL) | O_NONBLOCK);
  }

  int descriptor() const noexcept { return source_.get(); }
  // Passes on what has come. False: the source has ended.
  bool pass_on() {
    std::array<char, 16384> piece{};
    const ssize_t bytes = ::read(source_.get(), piece.data(), piece.size());
    if (bytes == 0) return false;
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    waiting_.append(piece.data(), static_cast<std::size_t>(bytes));
    write_lines(false);
    return true;
  }
  // The last line, which no newline ended.
  void finish() { write_lines(true); }

 private:
  void write_lines(bool is_end) {
    std::string lines;
    std::size_t start = 0;
    while (start < waiting_.size()) {
      const std::size_t newline = waiting_.find('\n', start);
      if (newline == std::string::npos && !is_end && waiting_.size() - start < kMaxLineBytes) break;
      const std::size_t end = newline == std::string::npos ? waiting_.size() : newline;
      lines += label_;
      lines.append(waiting_, start, end - start);
      lines += '\n';
      start = newline == std::string::npos ? waiting_.size() : newline + 1;
    }
    waiting_.erase(0, start);
    write_all(target_, lines);
  }

  Descriptor source_;
  int target_;
  std::string label_;
  std::string waiting_;
};

struct RankProcess {
  pid_t process = -1;
  bool is_running = true;
  std::unique_ptr<LabelledStream> output, errors;
};

class Launcher {
 public:
  explicit Launcher(const JobSettings& settings) : settings_(settings), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_.is_open()) fail(fmt::format("cannot wait for ranks: {}", std::strerror(errno)));
  }
  // Also when the start of a later rank failed.
  ~Launcher() {
    kill_all(SIGKILL);
    for (RankProcess& rank : ranks_)
      if (rank.is_running) ::waitpid(rank.process, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    watch(signals_.get(), kSignals);
    start_all();
    timeout_ns_ = settings_.timeout_s > 0 ? after_seconds(settings_.timeout_s) : kNever;
    while (running_count_ > 0) {
      wait();
      take_signals();
      reap();
      check_time();
    }
    // What is in the pipes; what outlived its rank may hold them open for ever.
    for (RankProcess& rank : ranks_)
      for (LabelledStream* stream : {rank.output.get(), rank.errors.get()}) drain(stream);
    return exit_status_;
  }

 private:
  void start_all() {
    const rlimit before = raise_descriptor_limit(settings_.has_labels);
    const ReservedPort& port = port_;
    const JobEnvironment environment(settings_, port.number(), key_file_);
    for (unsigned rank = 0; rank < settings_.rank_count; ++rank) {
      StartedRank started = start_rank(settings_, environment, rank, before);
      RankProcess& process = ranks_.emplace_back();
      process.process = started.process;
      ++running_count_;
      if (!settings_.has_labels) continue;
      process.output = std::make_unique<LabelledStream>(std::move(started.output), STDOUT_FILENO, rank);
      process.errors = std::make_unique<LabelledStream>(std::move(started.errors), STDERR_FILENO, rank);
      watch(process.output->descriptor(), 2 * std::uint64_t{rank});
      watch(process.errors->descriptor(), 2 * std::uint64_t{rank} + 1);
    }
  }

  void watch(int descriptor, std::uint64_t number) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = number;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
      fail(fmt::format("cannot wait for ranks: {}", std::strerror(errno)));
  }

  void wait() {
    const std::int64_t next_ns = std::min({timeout_ns_, ask_ns_, kill_ns_});
    const std::int64_t left_ms = next_ns == kNever ? 60'000 : std::max<std::int64_t>(next_ns - now_ns(), 0) / 1'000'000 + 1;
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(std::min<std::int64_t>(left_ms, 60'000)));
    for (int index = 0; index < count; ++index) {
      const std::uint64_t number = events[static_cast<std::size_t>(index)].data.u64;
      if (number == kSignals) continue;
      RankProcess& rank = ranks_[number / 2];
      LabelledStream* const stream = number % 2 == 0 ? rank.output.get() : rank.errors.get();
      if (!stream->pass_on()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->descriptor(), nullptr);
    }
  }

  void take_signals() {
    while (const auto signal = signals_.next()) {
      if (*signal == SIGCHLD) continue;
      // The second one is from somebody who does not want to wait.
      const bool is_first = !is_interrupted_;
      is_interrupted_ = true;
      kill_all(is_first ? *signal : SIGKILL);
      if (is_first) kill_ns_ = std::min(kill_ns_, after_seconds(settings_.grace_s));
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].is_running) continue;
      siginfo_t info{};
      const auto process = static_cast<id_t>(ranks_[rank].process);
      if (::waitid(P_PID, process, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
      const bool has_failed = info.si_code != CLD_EXITED || info.si_status != 0;
      // What a failed rank started has nobody left; the number of its group is still its own before it is reaped.
      if (has_failed || is_ending_) ::kill(-ranks_[rank].process, SIGKILL);
      ::waitpid(ranks_[rank].process, nullptr, 0);
      ranks_[rank].is_running = false;
      --running_count_;
      if (has_failed) note_failure(rank, info);
    }
  }

  void note_failure(std::size_t rank, const siginfo_t& info) {
    if (is_ending_) return;
    const bool is_exit = info.si_code == CLD_EXITED;
    const bool goes_on = settings_.keeps_going && !is_interrupted_;
    if (!std::exchange(has_failed_, true)) exit_status_ = is_exit ? info.si_status : 128 + info.si_status;
    if (!is_interrupted_ && (settings_.tells_exits || !is_exit)) {
      const std::string how = is_exit ? fmt::format("exit status {}", info.si_status)
                                      : fmt::format("signal {} ({})", info.si_status, ::strsignal(info.si_status));
      fmt::print(stderr, "{}: rank {} ended with {}{}\n", settings_.speaker, rank, how, others_text(goes_on));
    }
    if (goes_on) return;
    is_ending_ = true;
    ask_ns_ = after_seconds(kLastWordsSeconds);
  }

  std::string others_text(bool goes_on) const {
    if (running_count_ == 0) return "";
    if (running_count_ == 1) return fmt::format("; the other one that runs {}", goes_on ? "goes on" : "is ended");
    return fmt::format("; the {} others that run {}", running_count_, goes_on ? "go on" : "are ended");
  }

  void end_others() {
    is_ending_ = true;
    ask_ns_ = kNever;
    kill_all(SIGTERM);
    kill_ns_ = std::min(kill_ns_, after_seconds(settings_.grace_s));
  }

  void check_time() {
    const std::int64_t now = now_ns();
    if (now >= timeout_ns_ && running_count_ > 0) {
      timeout_ns_ = kNever;
      if (!is_ending_) {
        fmt::print(stderr, "{}: {} of {} had not ended after {} s; what runs is ended now\n", settings_.speaker, running_count_,
                   counted(settings_.rank_count, "rank"), settings_.timeout_s);
        if (!has_failed_) exit_status_ = kExitTimedOut;
        end_others();
      }
    }
    if (now >= ask_ns_ && running_count_ > 0) end_others();
    if (now >= kill_ns_ && running_count_ > 0) {
      kill_ns_ = kNever;
      kill_all(SIGKILL);
    }
  }

  void kill_all(int signal) const {
    for (const RankProcess& rank : ranks_) {
      if (!rank.is_running) continue;
      ::kill(-rank.process, signal);
      // A stopped one takes it only when it goes on.
      ::kill(-rank.process, SIGCONT);
    }
  }

  static void drain(LabelledStream* stream) {
    if (stream == nullptr) return;
    const std::int64_t end_ns = after_seconds(1);
    for (pollfd entry{stream->descriptor(), POLLIN, 0}; ::poll(&entry, 1, 0) == 1 && now_ns() < end_ns;)
      if (!stream->pass_on()) break;
    stream->finish();
  }

  const JobSettings& settings_;
  SignalDescriptor signals_;
  ReservedPort port_;
  JobKeyFile key_file_;  // for the life of the job
  Descriptor epoll_;
  std::vector<RankProcess> ranks_;
  unsigned running_count_ = 0;
  bool is_interrupted_ = false;
  bool is_ending_ = false;   // the others were asked to end, or are given their last words
  bool has_failed_ = false;  // a rank, which has set exit_status_
  int exit_status_ = 0;
  std::int64_t timeout_ns_ = kNever;
  std::int64_t ask_ns_ = kNever;  // the others to end
  std::int64_t kill_ns_ = kNever;
};

}  // namespace

int launch(const JobSettings& settings) { return Launcher(settings).run(); }

}  // namespace gigabar::tool::run
