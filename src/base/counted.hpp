// SPDX-License-Identifier: Apache-2.0
// Counts in messages: "1 rank", "2 ranks".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gigabar::inline v0 {

// `noun`: of one. `nouns`: of several, where that is not `noun` with an "s".
inline std::string counted(std::uint64_t count, std::string_view noun, std::string_view nouns = {}) {
  std::string text = std::to_string(count) + ' ';
  if (count == 1 || nouns.empty()) {
    text += noun;
    if (count != 1) text += 's';
  } else {
    text += nouns;
  }
  return text;
}

}  // namespace gigabar::inline v0
