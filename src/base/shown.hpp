// SPDX-License-Identifier: Apache-2.0
// What others wrote, for a message of ours.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace gigabar::inline v0 {

// One line of characters that can be shown, at most `most_bytes` and "..." where there are more.
inline std::string shown(std::string_view said, std::size_t most_bytes = 120) {
  std::string line(said.substr(0, most_bytes));
  std::replace_if(line.begin(), line.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  if (said.size() > most_bytes) line += "...";
  return line;
}

}  // namespace gigabar::inline v0
