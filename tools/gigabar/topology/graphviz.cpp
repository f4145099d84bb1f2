// SPDX-License-Identifier: Apache-2.0
#include "topology/output.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "support/failure.hpp"
#include "support/memory_file.hpp"
#include "support/output.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::topology {
namespace {

std::string first_line(const std::string& text) {
  return plain(std::string_view(text).substr(0, std::min<std::size_t>(text.find('\n'), 400)));
}

}  // namespace

void write_svg(const std::string& graph, const std::string& path, double most_seconds) {
  const MemoryFile input("--svg");
  const MemoryFile drawing("--svg");
  const MemoryFile messages("--svg");
  input.fill(graph);
  ChildProcess child;
  const int code = start_program({"dot", "-Tsvg"}, &input, drawing, messages, child);
  if (code == ENOENT) {
    fail("--svg: Graphviz's program 'dot', which draws the picture, is not in PATH; install it: apt install graphviz");
  }
  if (code != 0) {
    fail(fmt::format("--svg: cannot start 'dot': {}; it is part of Graphviz: apt install graphviz", std::strerror(code)));
  }
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
