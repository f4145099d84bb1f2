// SPDX-License-Identifier: Apache-2.0
// From the rates between all pairs of ranks to what is slow: a rank, a host, a rail, a group of hosts behind one switch, a pair, or
// one direction of a pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gigabar::tool::matrix {

// Where a rank is; ranks with the same number share the thing. -1: not known.
struct Placement {
  int host = -1;
  int rail = -1;   // a NIC of its host: numbers are of the whole job
  int group = -1;  // hosts behind one switch
};

// The rate from each rank to each other: row after row by sender. 0: not measured.
struct Rates {
  std::size_t count = 0;
  std::vector<double> gb_per_s;

  double at(std::size_t from, std::size_t to) const { return gb_per_s[from * count + to]; }
};

enum class Part : std::uint8_t { group, host, rail, rank, pair };
std::string_view name_of(Part part) noexcept;
enum class Way : std::uint8_t { both, sending, receiving };  // of a pair: `both`, or from `first` to `second` only (sending)

struct Slow {
  Part part = Part::rank;
  Way way = Way::both;
  int first = 0;
  int second = -1;             // of a pair
  double share = 0;            // median of its rates over what such paths usually have
  std::size_t path_count = 0;  // slow paths that it explains
  std::vector<int> others;     // of the same kind, that the rates cannot tell from it: the same paths cross all of them

  std::string text() const;  // "host 3, sending"
};

struct FindOptions {
  double floor = 0.25;       // a path that loses less is not slow, however quiet the others are
  double pair_floor = 0.35;  // of a path alone: among thousands of paths one is disturbed by chance
  double sigmas = 6;         // nor is one that loses less than so many robust standard deviations of its kind
  double agreement = 0.8;    // a part is slow when this share of the paths that cross it are
};

// What explains the slow paths, the part that explains most first. Paths are compared with those of their kind: within a host,
// within a group, or between groups. Cost: a few times count * count. Empty: nothing is slow, or half of all paths are, which is
// then what is usual.
std::vector<Slow> find_slow(const Rates& rates, std::span<const Placement> ranks, const FindOptions& options = {});

}  // namespace gigabar::tool::matrix
