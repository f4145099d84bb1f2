// SPDX-License-Identifier: Apache-2.0
#include "support/sizes.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <memory>

namespace gigabar::tool {

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = std::to_address(text.end());
  const auto [stopped, error] = std::from_chars(std::to_address(text.begin()), end, number);
  if (text.empty() || error != std::errc() || stopped != end) return {};
  return number;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  if (text.empty()) return {};
  std::string_view digits = text;
  unsigned shift = 0;
  switch (std::toupper(static_cast<unsigned char>(text.back()))) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    default: break;
  }
  if (shift != 0) digits.remove_suffix(1);
  const auto number = parse_digits(digits);
  if (!number || *number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return {};
  return *number << shift;
}

std::optional<SizeRange> parse_size_range(const std::string& text, const SizeRange& otherwise) {
  const std::size_t colon = text.find(':');
  const std::string least = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string most = colon == std::string::npos ? text : text.substr(colon + 1);
  if (least.empty() && most.empty()) return {};
  const auto first = least.empty() ? std::optional(otherwise.least_bytes) : parse_size(least);
  const auto last = most.empty() ? std::optional(otherwise.most_bytes) : parse_size(most);
  if (!first || !last || *first > *last || *last > kMaxBytes) return {};
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
