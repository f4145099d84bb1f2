// SPDX-License-Identifier: Apache-2.0
#include "support/nearest.hpp"

#include <algorithm>

#include "base/edit_distance.hpp"

namespace gigabar::tool {

std::string nearest(std::string_view wanted, const std::vector<std::string>& candidates) {
  constexpr std::size_t kMaxLetters = 64;  // no name is longer
  constexpr std::size_t kMinLetters = 3;   // every name is near to fewer
  const auto letters_of = [](std::string_view name) { return name.substr(std::min(name.find_first_not_of('-'), name.size())); };
  const std::string_view letters = letters_of(wanted).substr(0, kMaxLetters);
  std::string found;
  if (letters.size() < kMinLetters) return found;
  std::size_t least = letters.size() / 3 + 1;  // more than a third of it is another word
  for (const std::string& candidate : candidates) {
    const std::string_view known = letters_of(candidate);
    const std::size_t distance = known.starts_with(letters) ? 1 : edit_distance(letters, known);
    if (distance < least) {
      least = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace gigabar::tool
