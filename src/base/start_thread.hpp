// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/errors.hpp"

namespace gigabar::inline v0 {

// `thread` runs `work`, with every signal blocked. Errors: cannot_start_thread().
template <class Work>
Result<void> start_thread(std::thread& thread, std::string_view operation, std::string_view object, Work work) {
  const BlockedSignals blocked;
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return cannot_start_thread(std::string(operation), std::string(object), error.code().value());
  }
  return {};
}

}  // namespace gigabar::inline v0
