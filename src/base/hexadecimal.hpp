// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/options.hpp"

namespace gigabar::inline v0 {

// The number that is the whole of `digits`, which begin without "0x", and at most `most`; nothing for other text.
template <std::unsigned_integral Number>
std::optional<Number> hexadecimal(std::string_view digits, Number most = std::numeric_limits<Number>::max()) {
  return parse_number<Number>(digits, 0, most, 16);
}

// In lower case, with zeros before it up to `least_digits`.
inline std::string hexadecimal_text(std::uint64_t number, std::size_t least_digits = 1) {
  std::string digits;
  for (; number != 0 || digits.size() < least_digits; number >>= 4) digits.insert(0, 1, "0123456789abcdef"[number & 0xf]);
  return digits;
}

}  // namespace gigabar::inline v0
