// SPDX-License-Identifier: Apache-2.0
#include "run/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/in_place.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::run {
namespace {

// The rank that fails first may only be the one that heard of another's failure: that one gets time to say what it was.
constexpr double kLastWordsSeconds = 0.25;
constexpr double kLastLinesSeconds = 1;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t after_seconds(double seconds) { return now_ns() + static_cast<std::int64_t>(seconds * 1e9); }

// Signals that come as bytes of a descriptor while this lives.
class SignalDescriptor : InPlace {
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

constexpr std::size_t kMaxLineBytes = 65536;
constexpr std::size_t kReadBytes = 16384;

// One stream of one rank.
struct Stream {
  Descriptor source;    // a pipe, which does not block
  std::string label;    // of the rank
  std::string waiting;  // the beginning of a line
};

// Another description of a pipe or a terminal, which does not block: O_NONBLOCK on the given one would be set for every process
// that shares it. None of what is neither, and where the system refuses it.
Descriptor open_non_blocking(int shared) {
  struct stat status{};
  if (::fstat(shared, &status) != 0 || (!S_ISFIFO(status.st_mode) && ::isatty(shared) == 0)) return {};
  return Descriptor(::open(fmt::format("/proc/self/fd/{}", shared).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool is_regular_file(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// Where lines of two descriptors would mix: not on devices other than terminals.
bool is_same_file(int one, int other) {
  struct stat first{}, second{};
  if (::fstat(one, &first) != 0 || ::fstat(other, &second) != 0) return false;
  const bool is_same = first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  return is_same && (!S_ISCHR(first.st_mode) || ::isatty(one) == 1);
}

// In the place of a standard descriptor that is closed, which the next file that is opened here would get: one that cannot be
// written. Ranks find it closed.
void hold_closed_descriptors() {
  int descriptor = -1;
  do {
    descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

// Where so much waits for the reader the ranks' streams are not read, which holds the ranks up.
constexpr std::size_t kMaxPendingBytes = 262144;
constexpr int kRefusedMs = 20;

// This process's standard output or standard error, with the ranks' streams that go there, each line with the rank before it. Lines
// go out whole, so that those of different ranks do not mix; one of more than 64 KiB is cut. Nothing here waits, whatever its
// reader does: what is not taken yet is pending.
class Target {
 public:
  Target(int shared, std::string name)
      : own_(open_non_blocking(shared)),
        descriptor_(own_.is_open() ? own_.get() : shared),
        most_bytes_(own_.is_open() || is_regular_file(shared) ? std::numeric_limits<std::size_t>::max() : PIPE_BUF),
        name_(std::move(name)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_.is_open()) fail(fmt::format("cannot wait for ranks: {}", std::strerror(errno)));
  }

  const std::string& name() const noexcept { return name_; }
  std::size_t pending_bytes() const noexcept { return pending_.size(); }
  // Returns where the rank is to write.
  Descriptor add_stream(unsigned rank) {
    Pipe pipe = make_pipe(rank, true);
    ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
    Stream& stream = streams_.emplace_back(Stream{std::move(pipe.read), fmt::format("[{}] ", rank), {}});
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &stream;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.source.get(), &event) != 0)
      fail(fmt::format("cannot wait for ranks: {}", std::strerror(errno)));
    return std::move(pipe.write);
  }

  // Why nothing can be written any more, told once; 0: there is nothing to tell.
  int take_fault() noexcept { return std::exchange(untold_fault_, 0); }

  // What poll() is to wait for before the next pass_on(), and for how long at most.
  pollfd input() const noexcept { return {is_full() ? -1 : epoll_.get(), POLLIN, 0}; }
  pollfd room() const noexcept { return {pending_.empty() || has_refused_ ? -1 : descriptor_, POLLOUT, 0}; }
  int most_ms(int ms) const noexcept { return has_refused_ ? std::min(ms, kRefusedMs) : ms; }

  void pass_on() {
    write_pending();
    read_streams();
    write_pending();
  }
  // What the pipes hold now, and the last lines, which no newline ended. What outlived a rank may write to its pipe for ever.
  void read_rest() {
    for (Stream& stream : streams_) {
      int left_bytes = 0;
      ::ioctl(stream.source.get(), FIONREAD, &left_bytes);
      for (; left_bytes > 0; left_bytes -= static_cast<int>(kReadBytes)) read_lines(stream);
      move_lines(stream, true);
      stream.source = Descriptor();
    }
    write_pending();
  }
  void write(std::string_view lines) {
    pending_ += lines;
    write_pending();
  }

 private:
  bool is_full() const noexcept { return pending_.size() >= kMaxPendingBytes; }

  // As much as is taken now. What is ready takes PIPE_BUF without blocking.
  void write_pending() {
    if (fault_ != 0) pending_.clear();
    std::size_t done = 0;
    has_refused_ = false;
    while (done < pending_.size() && !has_refused_) {
      pollfd entry{descriptor_, POLLOUT, 0};
      if (::poll(&entry, 1, 0) != 1) break;
      const ssize_t bytes = ::write(descriptor_, pending_.data() + done, std::min(pending_.size() - done, most_bytes_));
      if (bytes < 0 && errno != EAGAIN && errno != EINTR) return end(errno);
      // A terminal may be ready and have no room for the two characters of a newline.
      has_refused_ = bytes <= 0;
      if (bytes > 0) done += static_cast<std::size_t>(bytes);
    }
    pending_.erase(0, done);
  }

  // All that are ready, before anybody asks again whether this is full: none of them starves.
  void read_streams() {
    if (is_full()) return;
    std::array<epoll_event, 16> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int index = 0; index < count; ++index) read_lines(*static_cast<Stream*>(events[static_cast<std::size_t>(index)].data.ptr));
  }

  // The lines that have come. Closes the source at its end.
  void read_lines(Stream& stream) {
    std::array<char, kReadBytes> piece{};
    const ssize_t bytes = ::read(stream.source.get(), piece.data(), piece.size());
    if (bytes > 0) {
      stream.waiting.append(piece.data(), static_cast<std::size_t>(bytes));
      move_lines(stream, false);
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
      stream.source = Descriptor();
    }
  }

  void move_lines(Stream& stream, bool is_end) {
    std::string& waiting = stream.waiting;
    std::size_t start = 0;
    while (start < waiting.size()) {
      const std::size_t newline = waiting.find('\n', start);
      if (newline == std::string::npos && !is_end && waiting.size() - start < kMaxLineBytes) break;
      const std::size_t end = std::min(newline, waiting.size());
      pending_ += stream.label;
      pending_.append(waiting, start, end - start);
      pending_ += '\n';
      start = end + 1;
    }
    waiting.erase(0, start);
  }

  // A reader that is gone is one of the ranks: they get the signal of a broken pipe, of which main() has made an error here. What
  // they write to a target with another fault is read and dropped, so that they can end as they like.
  void end(int code) {
    fault_ = untold_fault_ = code;
    pending_.clear();
    if (code != EPIPE) return;
    for (Stream& stream : streams_) stream.source = Descriptor();
  }

  Descriptor own_;
  int descriptor_;
  std::size_t most_bytes_;  // of one write; to a file whole lines, since between two writes another job that appends gets in
  std::string name_;
  Descriptor epoll_;
  std::deque<Stream> streams_;  // where one is does not change
  std::string pending_;         // whole lines, but for the beginning that is written
  bool has_refused_ = false;
  int fault_ = 0;
  int untold_fault_ = 0;
};

class Launcher : InPlace {
 public:
  explicit Launcher(const JobSettings& settings) : settings_(settings) {}
  // Also when the start of a later rank failed.
  ~Launcher() {
    kill_all(SIGKILL);
    for (const auto& [rank, process] : running_) ::waitpid(process, nullptr, 0);
  }

  int run() {
    start_all();
    timeout_ns_ = settings_.timeout_s > 0 ? after_seconds(settings_.timeout_s) : kNever;
    while (!running_.empty()) {
      wait(std::min({timeout_ns_, ask_ns_, kill_ns_}));
      take_signals();
      reap();
      check_time();
      note_faults();
    }
    for (Target* const target : targets()) target->read_rest();
    flush();
    return exit_status_ == 0 && has_lost_output_ ? kExitFailed : exit_status_;
  }

 private:
  void start_all() {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit raised = {before.rlim_max, before.rlim_max};
    if (settings_.has_labels) ::setrlimit(RLIMIT_NOFILE, &raised);  // they take two descriptors of each rank
    for (unsigned rank = 0; rank < settings_.rank_count; ++rank) {
      Descriptor output, errors;
      if (settings_.has_labels) {
        output = output_.add_stream(rank);
        errors = errors_.add_stream(rank);
      }
      running_.emplace(rank, start_rank(settings_, environment_, rank, output, errors, before));
    }
  }

  std::array<Target*, 2> targets() { return {&output_, &own_errors_}; }

  void wait(std::int64_t next_ns) {
    const std::int64_t left_ms = std::max<std::int64_t>(next_ns - now_ns(), 0) / 1'000'000 + 1;
    const int ms = output_.most_ms(own_errors_.most_ms(static_cast<int>(std::min<std::int64_t>(left_ms, 60'000))));
    std::array<pollfd, 5> entries = {
        {{signals_.get(), POLLIN, 0}, output_.input(), output_.room(), own_errors_.input(), own_errors_.room()}};
    ::poll(entries.data(), entries.size(), ms);
    for (Target* const target : targets()) target->pass_on();
  }

  // A message that cannot be written changes nothing else.
  void say(const std::string& text) { errors_.write(fmt::format("{}: {}\n", settings_.speaker, text)); }

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
    for (auto next = running_.begin(); next != running_.end();) {
      const auto [rank, process] = *next++;
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
      const bool has_failed = info.si_code != CLD_EXITED || info.si_status != 0;
      // What a failed rank started has nobody left; the number of its group is still its own before it is reaped.
      if (has_failed || is_ending_) ::kill(-process, SIGKILL);
      ::waitpid(process, nullptr, 0);
      running_.erase(rank);
      if (has_failed) note_failure(rank, info);
    }
  }

  void note_failure(unsigned rank, const siginfo_t& info) {
    if (is_ending_) return;
    const bool is_exit = info.si_code == CLD_EXITED;
    const bool goes_on = settings_.keeps_going && !is_interrupted_;
    if (exit_status_ == 0) exit_status_ = is_exit ? info.si_status : 128 + info.si_status;
    if (!is_interrupted_ && !(settings_.is_repeated && is_exit)) {
      const std::string how = is_exit ? fmt::format("exit status {}", info.si_status)
                                      : fmt::format("signal {} ({})", info.si_status, ::strsignal(info.si_status));
      say(fmt::format("rank {} ended with {}{}", rank, how, others_text(goes_on)));
    }
    if (!goes_on) end_others(after_seconds(kLastWordsSeconds));
  }

  // Output of ranks is lost, which fails the job as a failed rank does.
  void note_faults() {
    for (Target* const target : targets()) {
      const int code = target->take_fault();
      if (code == 0 || code == EPIPE) continue;
      has_lost_output_ = true;
      const bool ends = !running_.empty() && !settings_.keeps_going && !is_ending_ && !is_interrupted_;
      say(fmt::format("{}: cannot be written: {}{}", target->name(), std::strerror(code), ends ? "; what runs is ended" : ""));
      if (ends) end_others(after_seconds(kLastWordsSeconds));
    }
  }

  // They are asked to at that time.
  void end_others(std::int64_t at_ns) {
    is_ending_ = true;
    ask_ns_ = at_ns;
  }

  std::string others_text(bool goes_on) const {
    if (running_.empty()) return "";
    if (running_.size() == 1) return fmt::format("; the other one that runs {}", goes_on ? "goes on" : "is ended");
    return fmt::format("; the {} others that run {}", running_.size(), goes_on ? "go on" : "are ended");
  }

  void check_time() {
    if (running_.empty()) return;
    const std::int64_t now = now_ns();
    if (now >= timeout_ns_) {
      timeout_ns_ = kNever;
      has_timed_out_ = true;
      if (!is_ending_) {
        say(fmt::format("{} of {} had not ended after {} s; what runs is ended now", running_.size(),
                        counted(settings_.rank_count, "rank"), settings_.timeout_s));
        if (exit_status_ == 0) exit_status_ = kExitTimedOut;
        end_others(now);
      }
    }
    if (now >= ask_ns_) {
      ask_ns_ = kNever;
      kill_all(SIGTERM);
      kill_ns_ = std::min(kill_ns_, after_seconds(settings_.grace_s));
    }
    if (now >= kill_ns_) {
      kill_ns_ = kNever;
      kill_all(SIGKILL);
    }
  }

  void kill_all(int signal) const {
    for (const auto& [rank, process] : running_) {
      ::kill(-process, signal);
      // A stopped one takes it only when it goes on.
      ::kill(-process, SIGCONT);
    }
  }

  // Until the readers have all. They are waited for as the ranks were, until the timeout or a signal; after one of these only for a
  // moment.
  void flush() {
    const bool was_interrupted = is_interrupted_;
    const std::int64_t end_ns = was_interrupted || has_timed_out_ ? after_seconds(kLastLinesSeconds) : timeout_ns_;
    note_faults();
    while (output_.pending_bytes() + own_errors_.pending_bytes() > 0 && now_ns() < end_ns && is_interrupted_ == was_interrupted) {
      wait(end_ns);
      take_signals();
      note_faults();
    }
    for (const Target* const target : targets()) {
      if (target->pending_bytes() == 0) continue;
      has_lost_output_ = true;
      // To its own reader it would be no use.
      if (target != &errors_)
        say(fmt::format("{}: its reader did not take the last {} bytes", target->name(), target->pending_bytes()));
    }
  }

  const JobSettings& settings_;
  SignalDescriptor signals_;
  const JobEnvironment environment_ = make_environment(settings_);
  Target output_{STDOUT_FILENO, "standard output"};
  Target own_errors_{STDERR_FILENO, "standard error"};
  // Where both are one file what is written in parts stays in order only in one queue.
  Target& errors_ = is_same_file(STDOUT_FILENO, STDERR_FILENO) ? output_ : own_errors_;
  std::map<unsigned, pid_t> running_;  // the ranks' processes
  bool is_interrupted_ = false;
  bool is_ending_ = false;  // the others were asked to end, or are given their last words
  bool has_timed_out_ = false;
  bool has_lost_output_ = false;
  int exit_status_ = 0;  // not 0: a rank has failed, or the time was over
  std::int64_t timeout_ns_ = kNever;
  std::int64_t ask_ns_ = kNever;  // the others to end
  std::int64_t kill_ns_ = kNever;
};

}  // namespace

int launch(const JobSettings& settings) {
  hold_closed_descriptors();
  return Launcher(settings).run();
}

}  // namespace gigabar::tool::run
