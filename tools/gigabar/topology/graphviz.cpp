// SPDX-License-Identifier: Apache-2.0
#include "topology/output.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "driver/child_process.hpp"
#include "support/failure.hpp"
#include "support/memory_file.hpp"
#include "support/output.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::topology {
namespace {

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
  const MemoryFile input("--svg");
  const MemoryFile drawing("--svg");
  const MemoryFile messages("--svg");
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
