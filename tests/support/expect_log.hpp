// SPDX-License-Identifier: Apache-2.0
// Log lines of warning or error level written since the last look. A test that expects one takes it; what is left over fails the
// test.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace gigabar::test {

struct RecordedLog {
  std::mutex mutex;
  std::vector<std::string> lines;
};
inline RecordedLog& recorded_log() {
  static RecordedLog log;
  return log;
}

inline void record_log(LogLevel level, std::string_view message) {
  if (level > LogLevel::warning) return;
  const std::lock_guard lock(recorded_log().mutex);
  recorded_log().lines.emplace_back(message);
}

inline std::vector<std::string> take_log() {
  const std::lock_guard lock(recorded_log().mutex);
  return std::exchange(recorded_log().lines, {});
}

}  // namespace gigabar::test
