#include "support/sizes.hpp"

#include <algorithm>

#include "support/options.hpp"

namespace gigabar::tool {

std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise) {
  const std::size_t colon = text.find(':');
  const std::string least = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string most = colon == std::string::npos ? text : text.substr(colon + 1);
  if (least.empty() && most.empty()) return {};
  const auto first = least.empty() ? std::optional(otherwise.least_bytes) : parse_size(least);
  const auto last = most.empty() ? std::optional(otherwise.most_bytes) : parse_size(most);
  if (!first || !last || *first > *last || *last > kMostBytes) return {};
  return SizeRange{*first, *last};
}

std::vector<std::uint64_t> sizes_of(const SizeRange& range) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = range.least_bytes; bytes <= range.most_bytes; bytes = std::max<std::uint64_t>(1, bytes * 2)) {
    sizes.push_back(bytes);
  }
  return sizes;
}

}  // namespace gigabar::tool
