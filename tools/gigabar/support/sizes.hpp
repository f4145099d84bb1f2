// SPDX-License-Identifier: Apache-2.0
// Sizes on the command line, and ranges of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gigabar::tool {

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
// Ends the command as bad usage where what is typed is none.
SizeRange settle_range(const std::string& option, const std::string& typed, const RangeRule& rule);

}  // namespace gigabar::tool
