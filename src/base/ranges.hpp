// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gigabar::inline v0 {

// Whether `bytes` from `offset` on, perhaps none, lie within the first `whole` bytes; no sum that could wrap around.
constexpr bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t whole) noexcept {
  return bytes <= whole && offset <= whole - bytes;
}

}  // namespace gigabar::inline v0
