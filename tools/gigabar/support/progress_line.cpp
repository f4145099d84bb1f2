// SPDX-License-Identifier: Apache-2.0
#include "support/progress_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace {

constexpr const char* kEmptyLine = "\r\x1b[K";

// A longer line would wrap, and its beginning could not be written over.
std::size_t most_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - std::size_t{1} : 79;
}

}  // namespace

bool can_redraw(int descriptor) {
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::string time_left(double elapsed_s, double done, double count) {
  if (done <= 0 || elapsed_s < 1) return {};
  return fmt::format(", about {:.0f} s left", std::ceil(elapsed_s * (count - std::min(done, count)) / done));
}

void ProgressLine::show(const std::string& text) {
  if (!is_shown_) return;
  const std::string line = kEmptyLine + plain(text).substr(0, most_columns());
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  has_line_ = true;
}

void ProgressLine::clear() {
  if (!has_line_) return;
  std::fputs(kEmptyLine, stderr);
  std::fflush(stderr);
  has_line_ = false;
}

}  // namespace gigabar::tool
