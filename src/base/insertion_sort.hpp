// SPDX-License-Identifier: Apache-2.0
// Sorting short lists without changing the order of equals. (clang 19 warns of what std::stable_sort of GCC 12's library calls.)
#pragma once

#include <algorithm>

namespace gigabar::inline v0 {

template <class Range, class Less>
void insertion_sort(Range& range, Less less) {
  for (auto next = range.begin(); next != range.end(); ++next) {
    std::rotate(std::upper_bound(range.begin(), next, *next, less), next, next + 1);
  }
}

}  // namespace gigabar::inline v0
