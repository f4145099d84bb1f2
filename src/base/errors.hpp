// SPDX-License-Identifier: Apache-2.0
// Short ways to write an error record: what failed, on what, why, and what to do.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

namespace detail {
inline void append(std::string& line, std::string_view part) { line += part; }
inline void append(std::string& line, char part) { line += part; }
template <class Number>
  requires std::is_arithmetic_v<Number>
void append(std::string& line, Number number) {
  line += std::to_string(number);
}
}  // namespace detail

// All parts written one after another: text("device ", 3, " of ", 8). Errors are also written on paths that only look for the best
// backend, so this has to be quick.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string line;
  (detail::append(line, parts), ...);
  return line;
}

// All of a list, as text() writes what `part_of` makes of each.
template <class List, class PartOf = std::identity>
std::string joined(const List& list, std::string_view between = ", ", PartOf part_of = {}) {
  std::string line;
  for (bool is_first = true; const auto& each : list) {
    if (!std::exchange(is_first, false)) line += between;
    detail::append(line, std::invoke(part_of, each));
  }
  return line;
}

// "0x7f0012340000 +65536": how every message names a range of memory.
std::string range_text(std::uintptr_t address, std::size_t bytes);
std::string hex_text(std::uint64_t value);

// `code` as it was saved right after the failing call.
NativeCode errno_code(int code);

// The status an errno of a system call stands for: EMFILE is out_of_descriptors, EACCES no_permission, ...
Status status_of_errno(int code, Status otherwise = Status::device_error);

// Writes the record and logs it once, at level info: the caller is told, and may have expected it. `check` is one of check_ids.hpp.
Error make_error(Status status, std::string operation, std::string object, std::string cause, std::string remedy = {},
                 NativeCode native = {}, std::string_view check = {});

// Of a system call that failed with `code`: status_of_errno(code, otherwise), the cause "`what`: " and the system's own words for
// the code (its words alone when `what` is empty).
Error make_errno_error(int code, std::string operation, std::string object, std::string_view what = {}, std::string remedy = {},
                       Status otherwise = Status::device_error);

// To add to what a record says, in place. Throws std::bad_alloc like any allocation.
ErrorRecord& edit(Error& error);

// What was thrown, in a catch block: out_of_memory of std::bad_alloc, cannot_start_thread() of a std::thread, else what the
// exception says, with the errno of a std::system_error. Every function of the public headers that can throw inside ends with it,
// as do the library's own threads.
Error error_of_exception(const char* operation) noexcept;

// A thread that the kernel refused; `code` is pthread_create()'s. Status: no_permission or out_of_memory.
Error cannot_start_thread(std::string operation, std::string object, int code);

// The reason behind an error of opening something, as an availability.
Availability availability_of(const ErrorRecord& record);

// An absent thing, with its reason as the cause.
Error make_error(std::string operation, std::string object, const Availability& availability);

}  // namespace gigabar::inline v0
