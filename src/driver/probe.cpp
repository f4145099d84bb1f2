// SPDX-License-Identifier: Apache-2.0
#include "driver/probe.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/shown.hpp"
#include "driver/child_process.hpp"

extern char** environ;

namespace gigabar::inline v0 {
namespace {

constexpr const char* kSecondsVariable = "GIGABAR_PROBE_SECONDS";
constexpr const char* kOldSecondsVariable = "GIGABAR_TRIAL_SECONDS";  // old names, taken for one version
constexpr const char* kProgramVariable = "GIGABAR_PROBE_PROGRAM";
constexpr const char* kOldProgramVariable = "GIGABAR_TRIAL_PROGRAM";
constexpr unsigned kDefaultSeconds = 10;
constexpr unsigned kMaxSeconds = 600;
constexpr unsigned kMaxStretch = 6;  // on a host that is so loaded that the process seldom runs
// The last thing that a probe process says. Its exit status would not do: a library may exit with 0, and a program that ignores
// SIGCHLD is told no status.
constexpr std::string_view kPassed = "gigabar-probe: passed\n";
constexpr std::size_t kMaxOutputBytes = 65536;
constexpr std::size_t kMaxLineBytes = 300;

std::atomic<bool> is_probe{false};
std::atomic<bool> is_serving{false};

// Where the file lies that this code is in: the shared library, or the program that it is linked into.
std::string own_folder() {
  Dl_info info{};
  std::array<char, 4096> path{};
  const bool is_known = ::dladdr(reinterpret_cast<const void*>(&try_library), &info) != 0 && info.dli_fname != nullptr &&
                        ::realpath(info.dli_fname, path.data()) != nullptr;
  // Of a program dladdr() tells argv[0], which need not be a path.
  if (!is_known && ::readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return {};
  const std::string file = path.data();
  return file.substr(0, file.rfind('/'));
}

// A probe process says nothing of it: what it says last is quoted as the library's.
std::optional<std::string> variable(const char* name, const char* old_name) {
  if (auto given = environment(name)) return given;
  auto given = environment(old_name);
  if (given && !is_probe) log(LogLevel::warning, text(old_name, " is called ", name, " now"));
  return given;
}

std::string probe_program() {
  if (is_serving) return "/proc/self/exe";
  if (auto named = variable(kProgramVariable, kOldProgramVariable)) return std::move(*named);
  return own_folder() + "/" GIGABAR_LIBEXEC_FROM_LIB "/gigabar/gigabar-probe";
}

struct Child {
  ChildProcess process;
  Descriptor output;
};

// 0, or the errno.
int start_child(const std::string& program, const char* library, Child& child) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  child.output = Descriptor(ends[0]);
  ::fcntl(child.output.get(), F_SETFL, O_NONBLOCK);
  const Descriptor write_end(ends[1]);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, write_end.get(), STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t every, none;
  ::sigfillset(&every);
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &every);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string name = program, option = kProbeOption, what = library;
  char* arguments[] = {name.data(), option.data(), what.data(), nullptr};
  pid_t process = -1;
  const int code = ::posix_spawn(&process, program.c_str(), &files, &attributes, arguments, environ);
  if (code == 0) child.process = ChildProcess(process);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return code;
}

// How long the process has waited for a processor, while others ran there; 0 where the kernel does not count it. Source: the
// kernel's Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat.
std::int64_t waited_for_processor_ns(pid_t process) {
  const std::string counters = read_small_file(text("/proc/", process, "/schedstat")).value_or("");
  const auto second = counters.find(' ');
  return second == std::string::npos ? 0 : std::strtoll(counters.c_str() + second, nullptr, 10);
}

// The time of one process. That for which it waits for a processor is not its own: where many ranks of a loaded host try their
// libraries at once, none is to find its library at fault for it, and then to have other transports than the rest.
class ProbeTime {
 public:
  ProbeTime(pid_t process, unsigned seconds) noexcept : process_(process), own_ns_(kSecondNs * seconds) {}

  bool is_over() noexcept {
    passed_ns_ = now_ns() - begin_ns_;
    if (passed_ns_ < own_ns_) return false;
    quietly([&] { waited_ns_ = waited_for_processor_ns(process_); });
    return passed_ns_ - waited_ns_ >= own_ns_ || passed_ns_ >= own_ns_ * kMaxStretch;
  }
  std::string to_text() const {
    std::string line = text(passed_ns_ / kSecondNs, " s");
    if (waited_ns_ >= kSecondNs) line += text(", for ", waited_ns_ / kSecondNs, " of which it waited for a processor");
    return line;
  }

 private:
  static constexpr std::int64_t kSecondNs = 1'000'000'000;
  const pid_t process_;
  const std::int64_t own_ns_;
  const std::int64_t begin_ns_ = now_ns();
  std::int64_t passed_ns_ = 0, waited_ns_ = 0;  // when it was asked last
};

// Until the child has closed its output, or its time is over. What is more than kMaxOutputBytes is forgotten from its beginning.
void read_output(const Child& child, ProbeTime& time, std::string& output) {
  std::array<char, 4096> part{};
  while (!time.is_over()) {
    const ssize_t count = ::read(child.output.get(), part.data(), part.size());
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (count > 0) {
      output.append(part.data(), static_cast<std::size_t>(count));
      if (output.size() > kMaxOutputBytes) output.erase(0, output.size() - kMaxOutputBytes);
      continue;
    }
    pollfd waited{child.output.get(), POLLIN, 0};
    ::poll(&waited, 1, 50);
  }
}

// The last line that says something, as plain text.
std::string last_line(std::string_view output) {
  const auto end = output.find_last_not_of(" \t\r\n=");
  if (end == std::string_view::npos) return "it printed nothing";
  output = output.substr(0, end + 1);
  const auto begin = output.rfind('\n');
  return shown(output.substr(begin == std::string_view::npos ? 0 : begin + 1).substr(0, kMaxLineBytes), kMaxLineBytes);
}

std::string fault_text(const char* library, const std::optional<int>& status, const std::string& time, const std::string& output) {
  if (!status) return text(library, " did not come back from a probe process within ", time, ": ", last_line(output));
  if (*status == ChildProcess::kUnknown) return text(library, " ended a probe process: ", last_line(output));
  if (WIFSIGNALED(*status)) return text(library, " ended a probe process with ", signal_text(*status), ": ", last_line(output));
  return text(library, " ended a probe process with exit status ", WEXITSTATUS(*status), ": ", last_line(output));
}

Availability not_started(const char* library, const std::string& program, int code) {
  const std::string remedy = code == ENOENT ? text("install it there, or name it in ", kProgramVariable)
                                            : text("allow it to be started, or set ", kSecondsVariable, "=0 to go without a probe");
  return {AvailabilityCode::not_supported, text("the process that tries ", library, " cannot be started: ", program), remedy,
          errno_code(code)};
}

unsigned seconds_for_probe() {
  const auto given = variable(kSecondsVariable, kOldSecondsVariable);
  if (!given || given->empty()) return kDefaultSeconds;
  if (const auto seconds = parse_number<unsigned>(*given, 0, kMaxSeconds)) return *seconds;
  log(LogLevel::warning,
      text(kSecondsVariable, ": '", *given, "' is no number from 0 to ", kMaxSeconds, "; it is ", kDefaultSeconds));
  return kDefaultSeconds;
}

}  // namespace

Availability try_library(const char* library) {
  const unsigned seconds = seconds_for_probe();
  if (is_probe || seconds == 0) return {};
  const std::int64_t begin_ns = now_ns();
  const std::string program = probe_program();
  Child child;
  if (const int code = start_child(program, library, child); code != 0) return not_started(library, program, code);
  ProbeTime time(child.process.number(), seconds);
  std::string output;
  read_output(child, time, output);
  const auto status = child.process.end_when([&] { return time.is_over(); });
  if (output.ends_with(kPassed)) {
    log(LogLevel::debug, text(library, ": its probe took ", (now_ns() - begin_ns) / 1000, " us"));
    return {};
  }
  return {AvailabilityCode::not_supported, fault_text(library, status, time.to_text(), output),
          text("do what it says, or leave it out with GIGABAR_TRANSPORTS; ", kSecondsVariable, " allows it more time")};
}

// Whatever becomes of the process that waits for this one, it ends: with its parent; else by itself, when nobody waits any more.
void begin_probe() {
  is_probe = true;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const unsigned seconds = std::max(seconds_for_probe(), 1U);
  ::alarm(seconds * (kMaxStretch + 1));
  const rlimit none{0, 0}, processor{seconds + 1, seconds + 2};
  ::setrlimit(RLIMIT_CORE, &none);
  ::setrlimit(RLIMIT_CPU, &processor);
}

// Threads of the library may still run: nothing of this process is taken down.
void end_probe() {
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, kPassed.data(), kPassed.size());
  ::_exit(0);
}

void serve_probes() { is_serving = true; }

}  // namespace gigabar::inline v0
