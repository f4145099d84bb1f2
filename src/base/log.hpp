// SPDX-License-Identifier: Apache-2.0
// One log for the whole library, on standard error unless a handler is set. GIGABAR_LOG = off | error | warning | info | debug.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gigabar/export.hpp"

namespace gigabar::inline v0 {

enum class LogLevel : unsigned char { off, error, warning, info, debug };

// True when a message of that level would be written; test before building an expensive text.
bool is_logged(LogLevel level) noexcept;
// One line, lower case, the cause and not a guess. Any thread.
void log(LogLevel level, std::string_view message) noexcept;

using LogHandler = std::function<void(LogLevel, std::string_view)>;
// Replaces where messages go and returns the previous handler; an empty handler means standard error. A handler gets every level.
LogHandler set_log_handler(LogHandler handler);

}  // namespace gigabar::inline v0
