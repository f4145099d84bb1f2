// SPDX-License-Identifier: Apache-2.0
// On a stand-in a thread of the CPU plays the kernel of pplat.
#pragma once

#include <memory>
#include <thread>

#include "device_ranks/kernels.hpp"
#include "gigabar/device/scope.hpp"

namespace gigabar::tool {

// All its blocks, which report as one.
template <class Body>
device_ranks::AwaitKernel play_kernel(Body body) {
  struct Player {
    device_ranks::KernelRun run;
    std::jthread thread;
  };
  const auto player = std::make_shared<Player>();
  player->run.ends.resize(1);
  player->run.samples.resize(body.sample_count());
  body.samples = player->run.samples.data();
  body.ends = player->run.ends.data();
  player->thread = std::jthread([body] { body(device::Thread{}, 0); });
  return [player]() -> Result<device_ranks::KernelRun> {
    player->thread.join();
    return std::move(player->run);
  };
}

}  // namespace gigabar::tool
