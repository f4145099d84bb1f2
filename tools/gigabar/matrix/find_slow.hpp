// SPDX-License-Identifier: Apache-2.0
// From the rates between all pairs of ranks to what is slow: a rank, a host, a rail, a group of hosts behind one switch, a pair of
// hosts or of ranks, or one direction of a pair.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

enum class Part : std::uint8_t { group, host, rail, rank, host_pair, pair };
std::string_view name_of(Part part) noexcept;
enum class Way : std::uint8_t { both, sending, receiving };  // of pairs: `both`, or from `first` to `second` only (sending)

struct Slow {
  Part part = Part::rank;
  Way way = Way::both;
  int first = 0;
  int second = -1;             // of a pair of hosts or of ranks
  double share = 0;            // median of its rates over what such paths usually have
  std::size_t path_count = 0;  // slow paths that it explains
  std::size_t worst = 0;       // index of the slowest path that crosses it
  // Of the same kind, that the rates cannot tell from it: the same paths cross all of them.
  std::vector<int> others = {};  // GCC warns without it  NOLINT(readability-redundant-member-init)

  // "switch leaf1, sending": what a part of its kind is called, and what that of a number is.
  std::string text(std::string_view what, const std::function<std::string(int number)>& name) const;
};
constexpr bool is_pair(Part part) noexcept { return part == Part::host_pair || part == Part::pair; }
// Whether `slow` is crossed by the path between the two ranks.
bool crosses(const Slow& slow, std::span<const Placement> ranks, std::size_t from, std::size_t to) noexcept;

// Paths that cross different things are not compared.
enum class Kind : std::uint8_t { within_host, within_group, between_groups };
inline constexpr std::size_t kKinds = 3;
Kind kind_of(const Placement& from, const Placement& to) noexcept;

// What the paths of a kind usually have, and below which share of it one is slow. 0: there are no such paths.
struct Usual {
  double gb_per_s = 0, limit = 0;
  std::size_t path_count = 0, slow_count = 0;
  std::size_t worst = 0;  // index of the path with the least share
};

struct Comparison {
  std::array<Usual, kKinds> usual{};  // by Kind
  // Of each path, as the rates.
  std::vector<float> shares;          // of what is usual for its kind; 0: not measured
  std::vector<std::uint8_t> is_slow;  // 1: below its kind's limit
};

// Each path with those of its kind: within a host, within a group, or between groups. `gb_per_s`: the rate from each rank to each
// other, row after row by sender; 0: not measured. Of another number of ranks than have a placement: nothing.
Comparison compare_paths(std::span<const double> gb_per_s, std::span<const Placement> ranks);

// What explains the slow paths, the part that explains most first. Cost: a few times count * count where a path is slow. Empty:
// nothing is slow, or most of all paths are, which is then what is usual; or a third of them and no part explains it: such paths
// are of two kinds.
std::vector<Slow> explain_slow(const Comparison& comparison, std::span<const Placement> ranks);

}  // namespace gigabar::tool::matrix
