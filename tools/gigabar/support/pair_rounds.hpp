// SPDX-License-Identifier: Apache-2.0
// All pairs of a group in rounds in which every member meets one other: a 1-factorisation of the complete graph.
#pragma once

#include <utility>
#include <vector>

namespace gigabar::tool {

using Pairing = std::vector<std::pair<int, int>>;  // the first of a pair is the lesser

// `count` members have count - 1 rounds of count / 2 pairs; an odd number has count rounds, and one member rests in each. Every
// pair is in one round. The rounds of a group do not depend on anything but `count`, so that its members can compute them by
// themselves. Cost: all pairs at once; round_of_pairs() makes one round.
std::vector<Pairing> rounds_of_pairs(int count);
Pairing round_of_pairs(int count, int round);
inline int round_count_of(int count) { return count < 2 ? 0 : count - 1 + count % 2; }

}  // namespace gigabar::tool
