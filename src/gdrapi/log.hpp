// SPDX-License-Identifier: Apache-2.0
// How functions of the C boundary end that fail; and the log of libgdrapi, in GDRCopy's format and switched by its variables,
// separate from base/log.hpp, which the rooms below use.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <string_view>

#include "base/uncancelled.hpp"

namespace gigabar::gdrapi {

// True when errors would be printed; test before building an expensive text. Any thread.
bool is_logged() noexcept;

// Logs "<function>: <message>" as an error and returns `code`, so that a refusal is one statement: one line with GDRCopy's prefix
// to standard error, in one system call. Any thread; needs no memory.
int refuse(int code, std::string_view function, std::string_view message) noexcept;

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
