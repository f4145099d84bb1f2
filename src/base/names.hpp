// SPDX-License-Identifier: Apache-2.0
// Names of enumerators that count from 0, listed in their order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace gigabar::inline v0 {

// "unknown" for a number that is no enumerator's.
template <class Enum, std::size_t kCount>
constexpr std::string_view name_at(const std::array<std::string_view, kCount>& names, Enum value) noexcept {
  const auto number = static_cast<std::size_t>(value);
  return number < kCount ? names[number] : "unknown";
}

// The enumerator with that name; nothing for any other text.
template <class Enum, std::size_t kCount>
constexpr std::optional<Enum> value_named(const std::array<std::string_view, kCount>& names, std::string_view name) noexcept {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return {};
  return static_cast<Enum>(found - names.begin());
}

}  // namespace gigabar::inline v0
