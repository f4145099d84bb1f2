// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace gigabar::inline v0 {

// FNV-1a: the same number for the same bytes on every machine; against damage and mix-ups, not against a forger. `before`: the hash
// of what stands in front of them.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t before = 0xcbf29ce484222325) noexcept {
  for (const char byte : bytes) before = (before ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return before;
}

}  // namespace gigabar::inline v0
