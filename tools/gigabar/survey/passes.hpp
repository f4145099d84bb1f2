// SPDX-License-Identifier: Apache-2.0
// Everything that a survey measures, several times over.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "survey/figures.hpp"

namespace gigabar::tool::survey {

inline constexpr unsigned kPasses = 3;

struct Passes {
  unsigned count = 0;  // that were begun
  double seconds = 0;  // from the begin of the first to the end of the last
  std::vector<Figure> copies;
  PathFigures paths;
};

// What a survey has used of its time, and how much that is in all.
struct TimeLeft {
  std::function<double()> elapsed_s;
  double budget_s = 0;

  bool is_over(double share = 1) const { return elapsed_s() > budget_s * share; }
};

// The first pass is made whatever the time; of it and of the others what comes too late is left out, which the notes say.
// `tell` is called with what is measured, before it is.
Passes measure_passes(std::span<const DeviceInfo> devices, const TimeLeft& time,
                      const std::function<void(const std::string&)>& tell);

}  // namespace gigabar::tool::survey
