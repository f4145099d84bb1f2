// SPDX-License-Identifier: Apache-2.0
// Settings from the environment; numbers and words from text.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gigabar::inline v0 {

// The variable's value; nothing when it is unset, or when real and effective ids differ (a setuid program's environment is not
// trusted). Read each time: tests and programs may change it.
std::optional<std::string> environment(const char* name);

// A whole number, decimal unless `base` says otherwise, without a sign and with nothing else around it, within [least, most].
std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most, int base = 10);
// The same as a number of another type.
template <std::integral Number>
std::optional<Number> parse_number(std::string_view text, std::type_identity_t<Number> least, std::type_identity_t<Number> most,
                                   int base = 10) {
  const auto value = parse_number(text, static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most), base);
  return value ? std::optional(static_cast<Number>(*value)) : std::nullopt;
}

// "4096", "64K", "2M", "1G" (powers of 1024, either case), within [least, most]; nothing for other text.
std::optional<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t least = 1,
                                         std::uint64_t most = std::uint64_t{1} << 62);
// As parse_bytes() reads it: "1536K", the largest unit that leaves a whole number.
std::string format_bytes(std::uint64_t bytes);

// What stands between any of these letters, nowhere an empty word. Parts of `text`, which has to outlive them.
std::vector<std::string_view> words_of(std::string_view text, std::string_view between = " \t\n\v\f\r");

// "0-3,8", as the kernel writes lists of CPUs and nodes.
struct NumberList {
  std::vector<int> numbers;    // ascending, each once
  bool is_well_formed = true;  // false: some part was no number or range below the end; it added nothing
};
// Numbers below `end`. The work is bounded by the text's length and `end`, however often ranges repeat.
NumberList parse_number_list(std::string_view list, std::size_t end);

}  // namespace gigabar::inline v0
