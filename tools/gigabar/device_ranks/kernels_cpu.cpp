// SPDX-License-Identifier: Apache-2.0
// The kernels of these commands as threads of the CPU, and who runs them.
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "device_ranks/round_unit.hpp"
#include "device_ranks/side_by_side_units.hpp"
#include "device_ranks/unit.hpp"
#include "gigabar/device/scope.hpp"

namespace gigabar::tool::device_ranks {
namespace {

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
        if constexpr (is_for_blocks<Body>()) {
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

// start(first, second, ends) runs the kernel once.
template <class Start>
RepeatedKernel repeated(const Grid& grid, const Start& start) {
  const auto ends = std::make_shared<std::vector<UnitEnd>>(grid.unit_count());
  return {[=](std::uint32_t first, std::uint32_t second) {
            start(first, second, ends->data());
            return Result<void>();
          },
          [ends] { return Result(*ends); }};
}

}  // namespace

Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_rounds(device.index, plan, grid);
  return run_body(plan, [&](const auto& body) { return run_reporting(grid, body); });
}

Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::run_turns(device.index, plan, grid);
  return run_reporting(grid, TurnsBody{plan});
}

Result<RepeatedKernel> open_turn_kernel(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_turn_kernel(device.index, plan, grid);
  return repeated(grid, [=](std::uint32_t checked_round, std::uint32_t computed_round, UnitEnd* ends) {
    run_on_cpu(OneTurnBody{plan, ends, checked_round, computed_round}, grid);
  });
}

Result<RepeatedKernel> open_matvec(const DeviceInfo& device, const MatvecPlan& plan, const Grid& grid) {
  if (!device.is_stand_in) return gpu::open_matvec(device.index, plan, grid);
  const std::size_t fast_values = plan.fast_bytes() / sizeof(float);
  const auto fast = std::make_shared<std::vector<float>>(fast_values * grid.unit_count());
  return repeated(grid, [=](std::uint32_t task, std::uint32_t batch, UnitEnd* ends) {
    const MatvecBody body{plan, static_cast<MatvecTask>(task), batch, ends};
    run_on_cpu([&](const auto& scope, std::uint32_t unit) { body(scope, unit, fast->data() + unit * fast_values); }, grid);
  });
}

}  // namespace gigabar::tool::device_ranks
