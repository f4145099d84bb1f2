// SPDX-License-Identifier: Apache-2.0
// How functions of the C boundary end that fail; and the log of libgdrapi, in GDRCopy's format and switched by its variables,
// separate from base/log.hpp, which the rooms below use.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "base/uncancelled.hpp"

namespace gigabar::gdrapi {

// True when errors would be printed; test before building an expensive text. Any thread.
//
// GDRCopy turns its log on for every value of the first variable, 0 included, and takes what is no number in the second for 0.
// Without base/options.hpp, which takes memory.
inline bool is_logged() noexcept {
  constexpr int kError = 4;  // the highest number of GDRCOPY_LOG_LEVEL
  static const bool is_on = [] {
    const char* const level = secure_getenv("GDRCOPY_LOG_LEVEL");
    return secure_getenv("GDRCOPY_ENABLE_LOGGING") != nullptr &&
           (level == nullptr || static_cast<int>(std::strtol(level, nullptr, 10)) <= kError);
  }();
  return is_on;
}

// Logs "<function>: <message>" as an error and returns `code`, so that a refusal is one statement: one line with GDRCopy's prefix
// to standard error, in one system call. Any thread; needs no memory.
inline int refuse(int code, std::string_view function, std::string_view message) noexcept {
  if (!is_logged()) return code;
  const auto piece = [](std::string_view part) { return iovec{const_cast<char*>(part.data()), part.size()}; };
  const std::array pieces{piece("ERR:  "), piece(function), piece(": "), piece(message), piece("\n")};
  const Uncancelled uncancelled;
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, pieces.data(), static_cast<int>(pieces.size()));
  return code;
}

// Runs the body of one function: nothing thrown leaves the library, a thread that is cancelled
// meanwhile ends behind it, and every failure is logged once, with its name.
template <class Body>
int guarded(const char* function, Body&& body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, function, "no memory for the library's records");
  } catch (const std::exception& error) {
    return refuse(EIO, function, error.what());
  }
}

}  // namespace gigabar::gdrapi
