// SPDX-License-Identifier: Apache-2.0
#include "support/pair_rounds.hpp"

#include <algorithm>

namespace gigabar::tool {

// The circle method: the last seat stays, the others move by one seat a round; who sits opposite is the partner. With an odd number
// the last seat is empty, and its partner rests.
Pairing round_of_pairs(int count, int round) {
  const int seats = count + count % 2;
  const int moving = seats - 1;
  Pairing pairs;
  const auto add = [&](int one, int other) {
    if (std::max(one, other) < count) pairs.emplace_back(std::min(one, other), std::max(one, other));
  };
  add(round, moving);
  for (int i = 1; i < seats / 2; ++i) add((round + i) % moving, (round + moving - i) % moving);
  return pairs;
}

std::vector<Pairing> rounds_of_pairs(int count) {
  std::vector<Pairing> rounds;
  for (int round = 0; round < round_count_of(count); ++round) rounds.push_back(round_of_pairs(count, round));
  return rounds;
}

}  // namespace gigabar::tool
