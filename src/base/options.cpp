// SPDX-License-Identifier: Apache-2.0
#include "base/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace gigabar::inline v0 {

std::optional<std::string> environment(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr) return {};
  return std::string(value);
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) return {};
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t least, std::uint64_t most) {
  const std::size_t letter = text.empty() ? std::string_view::npos : std::string_view("KkMmGg").find(text.back());
  const std::size_t shift = letter == std::string_view::npos ? 0 : 10 * (letter / 2 + 1);
  if (shift != 0) text.remove_suffix(1);
  const auto value = parse_number(text, 0, most >> shift);
  if (!value || *value << shift < least) return {};
  return *value << shift;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::string_view kUnits = "KMG";
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit < kUnits.size(); ++unit) bytes /= 1024;
  return std::to_string(bytes).append(unit == 0 ? "" : kUnits.substr(unit - 1, 1));
}

std::vector<std::string_view> words_of(std::string_view text, std::string_view between) {
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(between); at < text.size(); at = text.find_first_not_of(between, at)) {
    words.push_back(text.substr(at, text.find_first_of(between, at) - at));
    at += words.back().size();
  }
  return words;
}

NumberList parse_number_list(std::string_view list, std::size_t end) {
  NumberList parsed;
  std::vector<int> starts(end + 1);  // ranges that begin at a number, less those that ended before it
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash), 0, end - 1);
    const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1), 0, end - 1);
    if (first && last && *first <= *last) {
      ++starts[*first];
      --starts[*last + 1];
    } else {
      parsed.is_well_formed = false;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  int open_ranges = 0;
  for (std::size_t n = 0; n < end; ++n) {
    open_ranges += starts[n];
    if (open_ranges > 0) parsed.numbers.push_back(static_cast<int>(n));
  }
  return parsed;
}

}  // namespace gigabar::inline v0
