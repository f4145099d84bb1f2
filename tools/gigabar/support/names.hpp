// SPDX-License-Identifier: Apache-2.0
// Values and their names, described once: for options, tables and documents.
#pragma once

#include <string_view>

namespace gigabar::tool {

template <class T>
struct Named {
  T value;
  std::string_view name;
};

// "unknown" for a value that the list does not hold.
template <class List, class T>
constexpr std::string_view name_in(const List& list, T value) noexcept {
  for (const auto& each : list) {
    if (each.value == value) return each.name;
  }
  return "unknown";
}

}  // namespace gigabar::tool
