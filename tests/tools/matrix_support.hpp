// SPDX-License-Identifier: Apache-2.0
// What the tests of what is slow in a job share.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "matrix/find_slow.hpp"

namespace gigabar::tool::matrix {

// The rate from each rank to each other: row after row by sender. 0: not measured.
struct Rates {
  std::size_t count = 0;
  std::vector<double> gb_per_s;
};

inline std::vector<Slow> find_slow(const Rates& rates, std::span<const Placement> ranks) {
  return explain_slow(compare_paths(rates.gb_per_s, ranks), ranks);
}

// "host 3, sending".
inline std::string text_of(const Slow& slow) {
  return slow.text(name_of(slow.part), [](int number) { return std::to_string(number); });
}

inline std::string texts(const std::vector<Slow>& found) {
  std::string all;
  for (const Slow& slow : found) all += (all.empty() ? "" : "; ") + text_of(slow);
  return all;
}

}  // namespace gigabar::tool::matrix
