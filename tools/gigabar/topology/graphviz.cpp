#include "topology/graphviz.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "support/failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::topology {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

// Beside the file that it becomes; removed again unless it does.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)),
        temporary_(fmt::format("{}.{}.new", path_, getpid())),
        file_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!file_.is_open()) fail(fmt::format("--svg {}: cannot create the file: {}", plain(path_), std::strerror(errno)));
  }
  ~NewFile() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int number() const noexcept { return file_.number(); }
  void keep() {
    if (lseek(file_.number(), 0, SEEK_END) <= 0) fail(fmt::format("--svg {}: 'dot' wrote nothing", plain(path_)));
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail(fmt::format("--svg {}: cannot write the file: {}", plain(path_), std::strerror(errno)));
    }
    temporary_.clear();
  }

 private:
  std::string path_;
  std::string temporary_;
  Descriptor file_;
};

// A file in memory: the child reads or writes it at its own pace, so no pipe can fill up or break.
class Scratch {
 public:
  explicit Scratch(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (!file_.is_open()) fail(fmt::format("--svg: cannot make a file in memory: {}", std::strerror(errno)));
  }
  int number() const noexcept { return file_.number(); }

  void fill(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = write(number(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(fmt::format("--svg: cannot fill a file in memory: {}", std::strerror(errno)));
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    lseek(number(), 0, SEEK_SET);
  }
  std::string first_line() const {
    std::array<char, 400> text{};
    const ssize_t count = pread(number(), text.data(), text.size(), 0);
    const std::string_view all(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    return plain(all.substr(0, all.find('\n')));
  }

 private:
  Descriptor file_;
};

pid_t start_dot(int input, int output, int messages) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
  std::array<char, 4> program = {"dot"};
  std::array<char, 6> format = {"-Tsvg"};
  std::array<char*, 3> arguments = {program.data(), format.data(), nullptr};
  pid_t child = -1;
  const int code = posix_spawnp(&child, program.data(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == ENOENT) {
    fail("--svg: Graphviz's program 'dot', which draws the picture, is not in PATH; install it: apt install graphviz");
  }
  if (code != 0) {
    fail(fmt::format("--svg: cannot start 'dot': {}; it is part of Graphviz: apt install graphviz", std::strerror(code)));
  }
  return child;
}

// The exit status as of waitpid. Ends the command, and the child, after `most_seconds`.
int wait_for(pid_t child, double most_seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(most_seconds);
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) fail(fmt::format("--svg: cannot wait for 'dot': {}", std::strerror(errno)));
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      fail(fmt::format("--svg: 'dot' was not done after {:g} s and was ended", most_seconds));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

void write_svg(const std::string& graph, const std::string& path, double most_seconds) {
  NewFile file(path);
  const Scratch input("gigabar-dot-input");
  const Scratch messages("gigabar-dot-messages");
  input.fill(graph);
  const int status = wait_for(start_dot(input.number(), file.number(), messages.number()), most_seconds);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string how = WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status)) : "ended by a signal";
    fail(fmt::format("--svg {}: 'dot' failed ({}): {}", plain(path), how, messages.first_line()));
  }
  file.keep();
}

}  // namespace gigabar::tool::topology
