// Short ways to write an error record: what failed, on what, why, and what to do.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "gigabar/status.hpp"

namespace gigabar {

// All parts written one after another: text("device ", 3, " of ", 8).
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// "0x7f0012340000 +65536": how every message names a range of memory.
std::string range_text(std::uintptr_t address, std::size_t bytes);
std::string hex_text(std::uint64_t value);

// `code` as it was saved right after the failing call.
NativeCode errno_code(int code);

// The status an errno of a system call stands for: EMFILE is out_of_descriptors, EACCES no_permission, ...
Status status_of_errno(int code, Status otherwise = Status::device_error);

// Writes the record and logs it once, at level info: the caller is told, and may have expected it.
Error make_error(Status status, std::string operation, std::string object, std::string cause, std::string remedy = {},
                 NativeCode native = {});

// The reason behind an error of opening something, as an availability.
Availability availability_of(const ErrorRecord& record);

// An absent thing, with its reason as the cause.
Error make_error(std::string operation, std::string object, const Availability& availability);

}  // namespace gigabar
