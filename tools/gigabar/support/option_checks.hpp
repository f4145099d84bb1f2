// SPDX-License-Identifier: Apache-2.0
// Checks of what is typed behind an option; sizes on the command line, and ranges of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/options.hpp"

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

// The whole text as a number.
std::optional<double> read_number(std::string_view text);

// The text as a size in bytes ("4096", "64K", "2M", "1G", powers of 1024); nothing when it is none.
std::optional<std::uint64_t> parse_size(const std::string& text);

struct SizeRange {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
};
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 34;

// "MAX", "MIN:MAX" or "MIN:", in bytes or with K, M, G. Nothing for another text, or when the least is above the most.
std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise);
// The least, then doubled up to the most; after 0 comes 1.
std::vector<std::uint64_t> sizes_of(const SizeRange& range);

// What a range behind an option has to be.
struct RangeRule {
  SizeRange usual;         // where nothing is typed
  std::uint64_t unit = 0;  // the least is a multiple of it and not 0; 0: any
  std::uint64_t most = kMaxBytes;
};
// For `target` as typed. The help shows the `usual` one.
Option add_range_option(const Command& command, const std::string& names, std::string& target, const std::string& help,
                        const std::string& usual);
// Ends the command as bad usage where what is typed is none.
SizeRange settle_range(const std::string& option, const std::string& typed, const RangeRule& rule);

}  // namespace gigabar::tool
