// SPDX-License-Identifier: Apache-2.0
#include "gdrapi/log.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/options.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::gdrapi {
namespace {

constexpr int kSilent = static_cast<int>(LogLevel::error) + 1;

// GDRCopy turns its log on for every value of the first variable, 0 included, and takes what is no number in the second for 0.
int least_level_from_environment() {
  if (!environment("GDRCOPY_ENABLE_LOGGING")) return kSilent;
  const auto level = environment("GDRCOPY_LOG_LEVEL");
  return level ? static_cast<int>(std::strtol(level->c_str(), nullptr, 10)) : static_cast<int>(LogLevel::error);
}

std::string_view prefix_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "DBG:  ";
    case LogLevel::info: return "INFO: ";
    case LogLevel::warning: return "WARN: ";
    case LogLevel::error: break;
  }
  return "ERR:  ";
}

}  // namespace

bool is_logged(LogLevel level) noexcept {
  try {
    static const int least_level = least_level_from_environment();
    return static_cast<int>(level) >= least_level;
  } catch (const std::exception&) {
    return false;  // out of memory while reading the environment: asked again at the next message
  }
}

void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept {
  if (!is_logged(level)) return;
  std::array<iovec, 8> pieces{};
  std::size_t count = 0;
  const auto add = [&](std::string_view part) {
    if (count < pieces.size()) pieces[count++] = {const_cast<char*>(part.data()), part.size()};
  };
  add(prefix_of(level));
  for (const std::string_view part : parts) add(part);
  add("\n");
  const Uncancelled uncancelled;
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, pieces.data(), static_cast<int>(count));
}

int refuse(int code, std::string_view function, std::string_view message) noexcept {
  log(LogLevel::error, {function, ": ", message});
  return code;
}

}  // namespace gigabar::gdrapi
