// SPDX-License-Identifier: Apache-2.0
// All pairs of a group in rounds in which every member meets one other: a 1-factorisation of the complete graph.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace gigabar::tool {

using Pairing = std::vector<std::pair<int, int>>;  // the first of a pair is the lesser

// `count` members have count - 1 rounds of count / 2 pairs; an odd number has count rounds, and one member rests in each. Every
// pair is in one round. The rounds of a group do not depend on anything but `count`, so that its members can compute them by
// themselves.
inline int round_count_of(int count) { return count < 2 ? 0 : count - 1 + count % 2; }

// The circle method: the last seat stays, the others move by one seat a round; who sits opposite is the partner. With an odd number
// the last seat is empty, and its partner rests.
inline Pairing round_of_pairs(int count, int round) {
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

}  // namespace gigabar::tool
