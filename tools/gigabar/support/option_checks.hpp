// SPDX-License-Identifier: Apache-2.0
// Checks of what is typed behind an option.
#pragma once

#include <cstdint>
#include <string>

#include "support/command_line.hpp"

namespace gigabar::tool {

// A size in bytes ("4096", "64K", "2M", "1G", powers of 1024), turned into digits.
Value byte_count(std::uint64_t least, std::uint64_t most = std::uint64_t{1} << 40);
Value whole_number(std::uint64_t least, std::uint64_t most, const char* name = "N");
// A number from `least` to `most`, both included.
Value real_number(double least, double most, const char* name);
// `what` it has to be, for the message.
Value number_above_0(double most, const char* name, const char* what = "a number");
// Seconds, with fractions, above 0.
Value seconds(double most);

// The name of a file that is written; "-", which is standard output elsewhere, is none.
Check file_name();

// The whole text as a number; false when it is none.
bool read_number(const std::string& text, double& value);

// Any text, called so in the help.
Value any_text(const char* name);

}  // namespace gigabar::tool
