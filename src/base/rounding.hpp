// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace gigabar::inline v0 {

// The least multiple of `unit` that is not below `value`.
template <std::unsigned_integral Number>
constexpr Number round_up(Number value, Number unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

}  // namespace gigabar::inline v0
