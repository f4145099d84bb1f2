// SPDX-License-Identifier: Apache-2.0
#include "gdrapi/log.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/options.hpp"

namespace gigabar::gdrapi {
namespace {

constexpr int kError = 4;  // the highest number of GDRCOPY_LOG_LEVEL

// GDRCopy turns its log on for every value of the first variable, 0 included, and takes what is no number in the second for 0.
bool is_logged_by_environment() {
  if (!environment("GDRCOPY_ENABLE_LOGGING")) return false;
  const auto level = environment("GDRCOPY_LOG_LEVEL");
  return !level || static_cast<int>(std::strtol(level->c_str(), nullptr, 10)) <= kError;
}

}  // namespace

bool is_logged() noexcept {
  try {
    static const bool is_on = is_logged_by_environment();
    return is_on;
  } catch (const std::exception&) {
    return false;  // out of memory while reading the environment: asked again at the next message
  }
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
