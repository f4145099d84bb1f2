// SPDX-License-Identifier: Apache-2.0
#include "topology/output.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"
#include "support/run_program.hpp"

namespace gigabar::tool::topology {
namespace {

std::string first_line(const std::string& text) {
  return plain(std::string_view(text).substr(0, std::min<std::size_t>(text.find('\n'), 400)));
}

}  // namespace

void write_svg(const std::string& graph, const std::string& path, double most_seconds) {
  const auto [code, status, svg, messages] = run_program("--svg", {"dot", "-Tsvg"}, &graph, most_seconds);
  if (code == ENOENT) {
    fail("--svg: Graphviz's program 'dot', which draws the picture, is not in PATH; install it: apt install graphviz");
  }
  if (code != 0) {
    fail(fmt::format("--svg: cannot start 'dot': {}; it is part of Graphviz: apt install graphviz", std::strerror(code)));
  }
  if (!status) fail(fmt::format("--svg: 'dot' was not done after {:g} s and was ended", most_seconds));
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    const std::string how = WIFEXITED(*status) ? fmt::format("exit status {}", WEXITSTATUS(*status)) : "ended by a signal";
    fail(fmt::format("--svg {}: 'dot' failed ({}): {}", plain(path), how, first_line(messages)));
  }
  if (svg.empty()) fail(fmt::format("--svg {}: 'dot' wrote nothing", plain(path)));
  write_file("--svg", path, svg);
}

}  // namespace gigabar::tool::topology
