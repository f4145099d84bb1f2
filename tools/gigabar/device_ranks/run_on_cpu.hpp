// SPDX-License-Identifier: Apache-2.0
// A kernel of scopes, played by threads of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "device_ranks/unit.hpp"
#include "gigabar/device/scope.hpp"

namespace gigabar::tool::device_ranks {

// body(scope, unit) on every lane of every unit; returns when all have ended. The body's own waits have ends.
template <class Body>
void run_on_cpu(const Body& body, const Grid& grid) {
  std::deque<device::CpuTeam> teams;  // does not move its elements
  std::vector<std::jthread> lanes;    // are awaited at the end, also when not all could be started
  const std::uint32_t team_count = grid.scope == ScopeKind::blocks ? grid.block_count : grid.unit_count();
  for (std::uint32_t unit = 0; unit < team_count; ++unit) {
    if (grid.scope == ScopeKind::thread) {
      lanes.emplace_back([&body, unit] { body(device::Thread{}, unit); });
      continue;
    }
    device::CpuTeam& team = teams.emplace_back(grid.threads_per_unit);
    for (std::uint32_t lane = 0; lane < grid.threads_per_unit; ++lane) {
      lanes.emplace_back([&, unit, member = device::CpuTeam::Member(team, lane)] {
        if constexpr (TakesBlocks<Body>) {
          if (grid.scope == ScopeKind::blocks) return body.run_block(member, grid.block_count, unit);
        }
        body(member, unit);
      });
    }
  }
}

// A kernel that reports: `body` is a UnitBody.
template <class Body>
KernelRun run_reporting(const Grid& grid, Body body) {
  KernelRun run;
  run.ends.resize(grid.unit_count());
  run.samples.resize(std::size_t{grid.unit_count()} * body.plan.sample_count());
  body.samples = run.samples.data();
  body.ends = run.ends.data();
  run_on_cpu(body, grid);
  return run;
}

}  // namespace gigabar::tool::device_ranks
