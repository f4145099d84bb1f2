// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/lanes.hpp"

#include <fmt/format.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "gigabar/device/scope.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::softhca {
namespace {

enum class Gate : std::uint8_t { closed, open, cancelled };

// Whether the lane is to begin. A block's lanes wait for each other, so that none may begin before all are there.
bool pass(const std::atomic<Gate>& gate) {
  gate.wait(Gate::closed);
  return gate.load() == Gate::open;
}

void set(std::atomic<Gate>& gate, Gate value) {
  gate.store(value);
  gate.notify_all();
}

template <class Body>
void run_threads(std::deque<Lane>& lanes, const Body& body) {
  std::atomic<Gate> gate{Gate::closed};
  std::vector<std::jthread> threads;  // joined here
  threads.reserve(lanes.size());
  try {
    for (Lane& lane : lanes) {
      threads.emplace_back([&gate, &body, &lane] {
        if (pass(gate)) body(lane);
      });
    }
  } catch (const std::system_error& error) {
    set(gate, Gate::cancelled);
    fail(fmt::format("--threads {}: thread {} cannot be started: {}; use fewer, or raise the limit (ulimit -u)", lanes.size(),
                     threads.size() + 1, error.what()));
  }
  set(gate, Gate::open);
}

template <Sharing S>
void run_shared(ScopeKind scope, const Rules& rules, std::deque<Lane>& lanes) {
  if (scope == ScopeKind::thread) {
    const device::Thread alone;
    run_threads(lanes, [&](Lane& lane) { LaneRun<S, device::Thread>(alone, rules, lane).run(); });
    return;
  }
  device::CpuTeam team(static_cast<std::uint32_t>(lanes.size()));
  run_threads(lanes, [&](Lane& lane) {
    const device::CpuTeam::Member member(team, lane.thread);
    LaneRun<S, device::CpuTeam::Member>(member, rules, lane).run();
  });
}

}  // namespace

void run_lanes(ScopeKind scope, Sharing sharing, const Rules& rules, std::deque<Lane>& lanes) {
  switch (sharing) {
    case Sharing::exclusive: return run_shared<Sharing::exclusive>(scope, rules, lanes);
    case Sharing::block: return run_shared<Sharing::block>(scope, rules, lanes);
    case Sharing::device: return run_shared<Sharing::device>(scope, rules, lanes);
  }
}

}  // namespace gigabar::tool::softhca
