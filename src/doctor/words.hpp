// SPDX-License-Identifier: Apache-2.0
// Words out of what a machine's files hold, and words into readings and statements.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/system_files.hpp"

namespace gigabar::doctor {

// --- out of files

// Takes the first line off the text, without its end.
std::string_view next_line(std::string_view& text);
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");
std::string lower(std::string_view mixed);
// What stands behind `name` at the beginning of a line, with or without a colon between them: of "CapEff:\t00" and "Max memory  5".
std::optional<std::string> field_of(std::string_view content, std::string_view name);

struct Version {
  unsigned major = 0, minor = 0;
  auto operator<=>(const Version&) const = default;
};
// "6.1.0-28-amd64", "2.5".
std::optional<Version> version_of(std::string_view text);

// --- into statements

// One line, at most `most` characters, control characters replaced: for values and statements made of what was read.
std::string printable(std::string_view text, std::size_t most = 200);
// For a reading: the content, "missing", "permission denied".
std::string value_of(const FileText& file);
std::string yes_or_no(const std::optional<bool>& fact);        // or "not told"
std::string list_text(const std::vector<std::string>& words);  // "a, b and c"
std::string size_text(std::uint64_t bytes);                    // "64 GiB", "256 MiB", "5.5 MiB"
std::string rounded(double number, int digits);                // "15.8": digits after the point

}  // namespace gigabar::doctor
