// SPDX-License-Identifier: Apache-2.0
// Which pairs of ranks are measured at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "support/names.hpp"
#include "support/pair_rounds.hpp"

namespace gigabar::tool::matrix {

enum class AtOnce : std::uint8_t { all, host, one };
inline constexpr std::array<Named<AtOnce>, 3> kAtOnce = {{{AtOnce::all, "all"}, {AtOnce::host, "host"}, {AtOnce::one, "one"}}};

// The pairs of each batch, in order: a round of pair_rounds.hpp (all), pairs of a round of which no two share a host (host), or one
// pair (one). `hosts`: of each rank, as numbers from 0 on. The batches depend on nothing else, so that all ranks compute the same.
// Cost: a round is made when it is reached.
void visit_batches(std::span<const int> hosts, AtOnce at_once, const std::function<void(const Pairing& pairs)>& visit);
std::size_t batch_count(std::span<const int> hosts, AtOnce at_once);

}  // namespace gigabar::tool::matrix
