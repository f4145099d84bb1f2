// Ranges of message sizes on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gigabar::tool {

struct SizeRange {
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
};
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 34;

// "MAX", "MIN:MAX" or "MIN:", in bytes or with K, M, G. Nothing for another text, or when the least is above the most.
std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise);
// The least, then doubled up to the most; after 0 comes 1.
std::vector<std::uint64_t> sizes_of(const SizeRange& range);

}  // namespace gigabar::tool
