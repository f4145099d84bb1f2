// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace gigabar::inline v0 {

// The number that is the whole of `digits`, which begin without "0x", and at most `most`; nothing for other text.
template <std::unsigned_integral Number>
std::optional<Number> hexadecimal(std::string_view digits, Number most = std::numeric_limits<Number>::max()) {
  Number value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || end != digits.data() + digits.size() || value > most) return {};
  return value;
}

}  // namespace gigabar::inline v0
