// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/names.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::array<std::string_view, 5> kLevels{"off", "error", "warning", "info", "debug"};  // by LogLevel

LogLevel level_from_environment() {
  return value_named<LogLevel>(kLevels, environment("GIGABAR_LOG").value_or("")).value_or(LogLevel::warning);
}

// Never destroyed: destructors of other static objects may still log.
struct Sink {
  const LogLevel level = level_from_environment();
  std::mutex mutex;
  LogHandler handler;
  std::atomic<bool> has_handler{false};
};

Sink& sink() {
  static Sink* const instance = new Sink;
  return *instance;
}
// When the library is loaded: later there may be no memory for it, and is_logged() cannot fail.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): where the loader has no memory nothing runs
[[maybe_unused]] const Sink& made_early = sink();

}  // namespace

bool is_logged(LogLevel level) noexcept {
  return level != LogLevel::off && (sink().has_handler.load(std::memory_order_relaxed) || level <= sink().level);
}

void log(LogLevel level, std::string_view message) noexcept {
  if (!is_logged(level)) return;
  const Uncancelled uncancelled;
  try {
    const std::lock_guard lock(sink().mutex);
    if (sink().handler) {
      sink().handler(level, message);
      return;
    }
    // One write per line, so that lines of several threads and processes do not mix.
    std::string line("gigabar ");
    line.append(kLevels[static_cast<std::size_t>(level)]).append(": ").append(message).append("\n");
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
    // Out of memory while logging: the message is lost, the caller's work is not.
  }
}

LogHandler set_log_handler(LogHandler handler) {
  const std::lock_guard lock(sink().mutex);
  sink().has_handler.store(static_cast<bool>(handler), std::memory_order_relaxed);
  return std::exchange(sink().handler, std::move(handler));
}

}  // namespace gigabar::inline v0
