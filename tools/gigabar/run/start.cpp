// SPDX-License-Identifier: Apache-2.0
// One rank of a job: its environment and the start of its process.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "run/launcher.hpp"
#include "support/failure.hpp"
#include "support/plain_text.hpp"
#include "support/run_program.hpp"

namespace gigabar::tool::run {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kIdBytes = 8;

// Those of the job itself, and of launchers that started this process: the ranks are not theirs.
bool is_replaced(std::string_view variable) {
  constexpr std::string_view kBeginnings[] = {// The job's own.
                                              "RANK=", "LOCAL_RANK=", "WORLD_SIZE=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
                                              "MASTER_PORT=", "GIGABAR_JOB_ID=", "GIGABAR_JOB_KEY_FILE=",
                                              // Read before these.
                                              "GIGABAR_JOB_KEY=", "GIGABAR_MASTER_PORT=", "GIGABAR_LAUNCHER=",
                                              // Launchers'.
                                              "PMIX_", "PMI_", "OMPI_COMM_WORLD_", "TORCHELASTIC_"};
  return std::ranges::any_of(kBeginnings, [variable](std::string_view beginning) { return variable.starts_with(beginning); });
}

std::string random_digits(std::size_t bytes) {
  std::array<unsigned char, kKeyBytes> random{};
  if (::getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    fail(fmt::format("the system gives no random numbers: {}", std::strerror(errno)));
  std::string digits;
  digits.reserve(2 * bytes);
  for (std::size_t index = 0; index < bytes; ++index) fmt::format_to(std::back_inserter(digits), "{:02x}", random[index]);
  explicit_bzero(random.data(), random.size());
  return digits;
}

std::uint16_t reserve_port(Descriptor& socket) {
  socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const int yes = 1;
  // Bound and not listening, so that rank 0, which sets the same option, can have it.
  if (!socket.is_open() || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    fail(fmt::format("no free port at 127.0.0.1: {}", std::strerror(errno)));
  return ntohs(address.sin_port);
}

Descriptor make_job_key() {
  Descriptor memory(::memfd_create("gigabar-job-key", MFD_CLOEXEC));
  std::string key = random_digits(kKeyBytes);
  const bool is_written = memory.is_open() && ::fchmod(memory.get(), 0600) == 0 &&
                          ::write(memory.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const int code = errno;
  explicit_bzero(key.data(), key.size());
  if (!is_written) fail(fmt::format("the job's key cannot be put into memory: {}", std::strerror(code)));
  return memory;
}

bool is_executable_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return false;
  if (!S_ISDIR(status.st_mode)) return ::access(path.c_str(), X_OK) == 0;
  errno = EISDIR;
  return false;
}

[[noreturn]] void refuse_program(const std::string& program, int code) {
  throw CommandFailure(code == ENOENT ? kExitNotFound : kExitNotExecutable,
                       fmt::format("{}: the program cannot be executed: {}; write the path of an executable file", plain(program),
                                   std::strerror(code)));
}

}  // namespace

Pipe make_pipe(unsigned rank, bool has_labels) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    const int code = errno;
    const char* const remedy = has_labels ? "; raise 'ulimit -n' or leave --label out" : "; raise 'ulimit -n'";
    fail(fmt::format("cannot make a pipe for rank {}: {}{}", rank, std::strerror(code), code == EMFILE ? remedy : ""));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string find_program(const std::string& program) {
  if (program.empty()) refuse_usage("the program's name is empty");
  if (program.find('/') != std::string::npos) {
    if (!is_executable_file(program)) refuse_program(program, errno);
    return program;
  }
  const char* const list = std::getenv("PATH");
  std::istringstream folders(std::string(list != nullptr ? list : "/usr/bin:/bin") + ":");  // one behind each, empty or not
  bool is_forbidden = false;
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (is_executable_file(path)) return path;
    is_forbidden |= errno == EACCES;
  }
  if (is_forbidden) refuse_program(program, EACCES);
  throw CommandFailure(kExitNotFound, fmt::format("{}: no such program in PATH; write its path, or ./{} when it is in this folder",
                                                  plain(program), plain(program)));
}

JobEnvironment make_environment(const JobSettings& settings) {
  JobEnvironment environment;
  const std::uint16_t port = reserve_port(environment.port);
  environment.key = make_job_key();
  std::vector<std::string>& variables = environment.variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_replaced(*variable) && !(settings.stand_in_count > 0 && std::string_view(*variable).starts_with("GIGABAR_STAND_IN=")))
      variables.emplace_back(*variable);
  variables.push_back(fmt::format("WORLD_SIZE={}", settings.rank_count));
  variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", settings.rank_count));
  variables.emplace_back("MASTER_ADDR=127.0.0.1");
  variables.push_back(fmt::format("MASTER_PORT={}", port));
  variables.push_back("GIGABAR_JOB_ID=" + std::string(settings.is_repeated ? kRepeatedId : "run-") + random_digits(kIdBytes));
  variables.push_back(fmt::format("GIGABAR_JOB_KEY_FILE=/proc/{}/fd/{}", ::getpid(), environment.key.get()));
  if (settings.stand_in_count > 0) variables.push_back(fmt::format("GIGABAR_STAND_IN={}", settings.stand_in_count));
  return environment;
}

pid_t start_rank(const JobSettings& settings, const JobEnvironment& environment, unsigned rank, const Descriptor& output,
                 const Descriptor& errors, const rlimit& descriptor_limit) {
  Pipe failure = make_pipe(rank, settings.has_labels);
  // A terminal has one reader; other ranks would take turns at it.
  const bool has_input = rank == 0 && ::isatty(STDIN_FILENO) == 0;
  const Descriptor nothing(has_input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> own = environment.variables;
  own.insert(own.begin(), {fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank)});
  std::vector<std::string> program = settings.program;
  const std::vector<char*> arguments = pointers_to(program), variables = pointers_to(own);
  const std::array<int, 3> streams = {nothing.get(), output.get(), errors.get()};  // -1: as this process's
  const pid_t launcher = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) fail(fmt::format("cannot start rank {}: {}; see 'ulimit -u'", rank, std::strerror(errno)));
  if (process == 0) {  // may allocate nothing
    // Its own group: what a signal ends is the rank with all that it started.
    ::setpgid(0, 0);
    // A rank does not outlive its launcher, however that ends; it may have ended already.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(127);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
      const int descriptor = streams[static_cast<std::size_t>(standard)];
      if (descriptor >= 0 && ::dup2(descriptor, standard) < 0) ::_exit(127);
    }
    ::setrlimit(RLIMIT_NOFILE, &descriptor_limit);
    ::execve(settings.path.c_str(), arguments.data(), variables.data());
    const int code = errno;
    static_cast<void>(!::write(failure.write.get(), &code, sizeof code));
    ::_exit(127);
  }
  ::setpgid(process, process);  // whoever of the two is first
  failure.write = Descriptor();
  // Why the program could not be executed; nothing when it runs: its end of the pipe is closed by then.
  int code = 0;
  while (::read(failure.read.get(), &code, sizeof code) < 0 && errno == EINTR) {
  }
  // It has ended itself; the launcher's end takes the other ranks along.
  if (code != 0) refuse_program(settings.program.front(), code);
  return process;
}

}  // namespace gigabar::tool::run
