// SPDX-License-Identifier: Apache-2.0
// A kernel of units that report: what each scope of its grid does.
#pragma once

#include <cstdint>

#include "device_ranks/unit_end.hpp"
#include "gigabar/device/memory.hpp"

namespace gigabar::tool::device_ranks {

// Unit<Scope>(scope, plan, index, end).run(samples): [plan.sample_count()] samples, and an end that is zeroed.
template <template <class> class Unit, class Plan>
struct UnitBody {
  Plan plan;
  std::uint64_t* samples = nullptr;  // of all units
  UnitEnd* ends = nullptr;           // [unit_count]

  template <class Scope>
  GIGABAR_DEVICE void operator()(const Scope& scope, std::uint32_t unit) const {
    Unit<Scope>(scope, plan, unit, ends + unit).run(samples + std::uint64_t{unit} * plan.sample_count());
  }
};

}  // namespace gigabar::tool::device_ranks
