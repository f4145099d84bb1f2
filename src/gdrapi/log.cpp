// SPDX-License-Identifier: Apache-2.0
#include "gdrapi/log.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace gigabar::gdrapi {

// GDRCopy turns its log on for every value of the first variable, 0 included, and takes what is no number in the second for 0.
// Without base/options.hpp, which takes memory.
bool is_logged() noexcept {
  constexpr int kError = 4;  // the highest number of GDRCOPY_LOG_LEVEL
  static const bool is_on = [] {
    const char* const level = secure_getenv("GDRCOPY_LOG_LEVEL");
    return secure_getenv("GDRCOPY_ENABLE_LOGGING") != nullptr &&
           (level == nullptr || static_cast<int>(std::strtol(level, nullptr, 10)) <= kError);
  }();
  return is_on;
}

int refuse(int code, std::string_view function, std::string_view message) noexcept {
  if (!is_logged()) return code;
  const auto piece = [](std::string_view part) { return iovec{const_cast<char*>(part.data()), part.size()}; };
  const std::array pieces{piece("ERR:  "), piece(function), piece(": "), piece(message), piece("\n")};
  const Uncancelled uncancelled;
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, pieces.data(), static_cast<int>(pieces.size()));
  return code;
}

}  // namespace gigabar::gdrapi
