// SPDX-License-Identifier: Apache-2.0
#include "topology/output.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/output_file.hpp"
#include "driver/child_process.hpp"
#include "support/failure.hpp"
#include "support/output.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::topology {
namespace {

// A file in memory: the child reads or writes it at its own pace, so no pipe can fill up or break.
class Scratch {
 public:
  explicit Scratch(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (!file_.is_open()) fail(fmt::format("--svg: cannot make a file in memory: {}", std::strerror(errno)));
  }
  int number() const noexcept { return file_.get(); }

  void fill(std::string_view text) const {
    if (!write_all(number(), text)) fail(fmt::format("--svg: cannot fill a file in memory: {}", std::strerror(errno)));
    lseek(number(), 0, SEEK_SET);
  }
  std::string content() const {
    std::string text(static_cast<std::size_t>(std::max<off_t>(lseek(number(), 0, SEEK_END), 0)), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = pread(number(), text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(fmt::format("--svg: cannot read a file in memory: {}", std::strerror(errno)));
      done += static_cast<std::size_t>(count);
    }
    return text;
  }

 private:
  Descriptor file_;
};

std::string first_line(const std::string& text) {
  return plain(std::string_view(text).substr(0, std::min<std::size_t>(text.find('\n'), 400)));
}

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

}  // namespace

void write_svg(const std::string& graph, const std::string& path, double most_seconds) {
  const Scratch input("gigabar-dot-input");
  const Scratch drawing("gigabar-dot-drawing");
  const Scratch messages("gigabar-dot-messages");
  input.fill(graph);
  ChildProcess child(start_dot(input.number(), drawing.number(), messages.number()));
  const std::optional<int> status = child.end_by(now_ns() + static_cast<std::int64_t>(most_seconds * 1e9));
  if (!status) fail(fmt::format("--svg: 'dot' was not done after {:g} s and was ended", most_seconds));
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    const std::string how = WIFEXITED(*status) ? fmt::format("exit status {}", WEXITSTATUS(*status)) : "ended by a signal";
    fail(fmt::format("--svg {}: 'dot' failed ({}): {}", plain(path), how, first_line(messages.content())));
  }
  const std::string svg = drawing.content();
  if (svg.empty()) fail(fmt::format("--svg {}: 'dot' wrote nothing", plain(path)));
  write_file("--svg", path, svg);
}

}  // namespace gigabar::tool::topology
