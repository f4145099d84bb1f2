// SPDX-License-Identifier: Apache-2.0
#include "driver/hwloc/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "driver/child_process.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr const char* kOperation = "topology";
constexpr int kFailedInChild = 3;

// What this process has mapped: a limit below it would stop every allocation of the child. Under CUDA and sanitizers that is far
// more than the machine's memory.
std::size_t mapped_bytes() {
  const std::string sizes = read_small_file("/proc/self/statm").value_or("");
  return static_cast<std::size_t>(std::strtoull(sizes.c_str(), nullptr, 10)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void limit(__rlimit_resource resource, rlim_t most) {
  rlimit now{};
  ::getrlimit(resource, &now);
  const rlim_t allowed = std::min(most, now.rlim_max);
  const rlimit lowered{allowed, allowed};
  ::setrlimit(resource, &lowered);
}

void restrict_this_process(const ChildLimits& limits, std::size_t memory_bytes) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A handler of the parent's program must not run here: a crash is to end the child, quickly and quietly.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGXCPU, SIGPIPE, SIGTERM, SIGINT}) {
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits.time).count();
  ::alarm(static_cast<unsigned>(seconds) + 1);
  limit(RLIMIT_CPU, static_cast<rlim_t>(seconds) + 1);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_AS, memory_bytes);
}

// The pipe becomes 3, everything above is closed. Returns false when that cannot be done.
bool keep_only(int pipe_end) {
  constexpr int kKept = 3;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || (pipe_end != kKept && ::dup2(pipe_end, kKept) < 0)) return false;
  for (int standard = 0; standard < kKept; ++standard) {
    if (::dup2(null, standard) < 0) return false;
  }
  return ::close_range(kKept + 1, ~0U, 0) == 0;
}

[[noreturn]] void run_in_child(const std::function<void(int)>& work, int pipe_end, const ChildLimits& limits,
                               std::size_t memory_bytes) {
  restrict_this_process(limits, memory_bytes);
  if (!keep_only(pipe_end)) ::_exit(kFailedInChild);
  ::clearenv();
  try {
    work(3);
  } catch (...) {
    ::_exit(kFailedInChild);
  }
  ::_exit(0);
}

int milliseconds_until(std::int64_t end_ns) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  return static_cast<int>(std::max<std::int64_t>(end_ns - now_ns() + kMillisecond - 1, 0) / kMillisecond);
}

// Why the output is not to be used; nothing when the child wrote all of it.
std::optional<std::string> read_output(int pipe_end, const ChildLimits& limits, std::int64_t end_ns, std::string& output) {
  std::array<char, 65536> part{};
  while (true) {
    pollfd waited{pipe_end, POLLIN, 0};
    const int left = milliseconds_until(end_ns);
    const int ready = left == 0 ? 0 : ::poll(&waited, 1, left);
    if (ready == 0) return text("the process that read it did not end within ", limits.time.count(), " ms");
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t count = ::read(pipe_end, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return text("its content cannot be read from the process that reads it: ", std::strerror(errno));
    if (count == 0) return {};
    if (output.size() + static_cast<std::size_t>(count) > limits.output_bytes) {
      return text("more than ", counted(limits.output_bytes, "byte"), " are told of it");
    }
    output.append(part.data(), static_cast<std::size_t>(count));
  }
}

std::optional<std::string> fault_in(int status) {
  if (status == ChildProcess::kUnknown) return {};
  if (WIFSIGNALED(status)) return text("the process that read it died of ", signal_text(status));
  if (WEXITSTATUS(status) != 0) return std::string("the process that read it gave up, for example for want of memory");
  return {};
}

}  // namespace

Result<std::string> output_of_child(const std::function<void(int)>& work, const std::string& name, const ChildLimits& limits) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    const int code = errno;
    return make_error(status_of_errno(code), kOperation, name, "no pipe can be made", {}, errno_code(code));
  }
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const std::size_t memory_bytes = mapped_bytes() + limits.memory_bytes;
  const std::int64_t end_ns = now_ns() + std::chrono::nanoseconds(limits.time).count();
  const pid_t process = ::fork();
  if (process < 0) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::out_of_memory), kOperation, name, "no process can be started to read it", {},
                      errno_code(code));
  }
  if (process == 0) run_in_child(work, write_end.get(), limits, memory_bytes);
  ChildProcess child(process);
  write_end = Descriptor();

  std::string output;
  auto fault = read_output(read_end.get(), limits, end_ns, output);
  const auto status = child.end_by(fault ? 0 : end_ns);
  if (!fault && status) fault = fault_in(*status);
  if (!fault) return output;
  return make_error(Status::bad_file, kOperation, name, *fault, "the machine's files are not as a kernel writes them");
}

}  // namespace gigabar::inline v0
