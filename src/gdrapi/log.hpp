// SPDX-License-Identifier: Apache-2.0
// The log of libgdrapi, in GDRCopy's format and switched by its variables; separate from base/log.hpp, which the rooms below use.
#pragma once

#include <initializer_list>
#include <string_view>

namespace gigabar::gdrapi {

enum class LogLevel : unsigned char { debug = 1, info = 2, warning = 3, error = 4 };  // the numbers of GDRCOPY_LOG_LEVEL

// True when a message of that level would be printed; test before building an expensive text. Any thread.
bool is_logged(LogLevel level) noexcept;

// Prints the parts (at most six) as one line with GDRCopy's prefix to standard error, in one system call. Any thread; needs no
// memory.
void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept;

// Logs "<function>: <message>" as an error and returns `code`, so that a refusal is one statement.
int refuse(int code, std::string_view function, std::string_view message) noexcept;

}  // namespace gigabar::gdrapi
