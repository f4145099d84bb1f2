// SPDX-License-Identifier: Apache-2.0
// Which pairs of ranks are measured at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "support/names.hpp"
#include "support/pair_rounds.hpp"

namespace gigabar::tool::matrix {

enum class AtOnce : std::uint8_t { all, host, one };
inline constexpr std::array<Named<AtOnce>, 3> kAtOnce = {{{AtOnce::all, "all"}, {AtOnce::host, "host"}, {AtOnce::one, "one"}}};

// The pairs of each batch, in order: a round of pair_rounds.hpp (all), pairs of a round of which no two share a host (host), or one
// pair (one). `hosts`: of each rank, as numbers from 0 on. The batches depend on nothing else, so that all ranks compute the same.
// Cost: a round is made when it is reached.
void visit_batches(std::span<const int> hosts, AtOnce at_once, const std::function<void(const Pairing& pairs)>& visit);

// Batches in which not every rank has a partner need no barrier of all: whoever had a host (of `one`: the job) last tells the rank
// that has it next, and the pairs of hosts that are free begin. All ranks go through the same pairs in the same order.
class Turns {
 public:
  Turns(std::span<const int> hosts, AtOnce at_once);

  struct HandOver {
    int from, to;
  };
  // What comes before this pair, behind those that were given before: one for each of its hosts, but where the same rank goes on.
  std::vector<HandOver> take(const std::pair<int, int>& pair);

 private:
  std::size_t turn_of(int rank) const {
    return at_once_ == AtOnce::one ? 0 : static_cast<std::size_t>(hosts_[static_cast<std::size_t>(rank)]);
  }

  std::span<const int> hosts_;  // the caller's
  AtOnce at_once_;
  std::vector<int> holders_;  // by host; -1: nobody had it
};

}  // namespace gigabar::tool::matrix
