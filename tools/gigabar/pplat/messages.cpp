// SPDX-License-Identifier: Apache-2.0
#include "pplat/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "cuda/call_unit.hpp"
#include "gigabar/kernel_ring.hpp"
#include "gigabar/memory.hpp"
#include "pplat/player.hpp"
#include "support/failure.hpp"

namespace gigabar::tool {
namespace {

using Words = std::vector<std::uint32_t>;

void fill(Words& words, std::uint32_t round) {
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = device_ranks::data_word(0, round, 0, i);
}

void check_answer(const Words& sent, const Words& answer, std::uint64_t bytes, std::uint32_t round) {
  if (bytes != sent.size() * sizeof(std::uint32_t)) {
    fail(fmt::format("wrong answer in round {}: {} instead of {}", round, counted(bytes, "byte"),
                     sent.size() * sizeof(std::uint32_t)));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (answer[i] == sent[i] + 1) continue;
    fail(fmt::format("wrong answer in round {} at offset {}: expected 0x{:08x}, found 0x{:08x}", round, i * sizeof(std::uint32_t),
                     sent[i] + 1, answer[i]));
  }
}

// Both halves of the ring hold the message twice.
std::uint32_t ring_bytes_for(std::size_t data_bytes) {
  std::uint32_t bytes = 65536;
  while (bytes < std::size_t{8} * data_bytes && bytes < (1U << 30)) bytes *= 2;
  return bytes;
}

// Tells a kernel that runs to end, whatever happens.
class Stop {
 public:
  explicit Stop(KernelRing& ring) : ring_(ring) {}
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;
  ~Stop() { ring_.stop(); }

 private:
  KernelRing& ring_;
};

}  // namespace

std::uint32_t threads_for(std::size_t data_bytes, std::uint32_t most) {
  constexpr std::size_t kLinesOfAThread = 3;  // a warp needs no barrier of a block for so few
  constexpr std::size_t kWarp = device_ranks::kWarpThreads;
  if (data_bytes <= kWarp * kLinesOfAThread * sizeof(std::uint64_t)) return static_cast<std::uint32_t>(kWarp);
  const std::size_t warps =
      std::min<std::size_t>(data_bytes / sizeof(std::uint64_t), std::min(most, device_ranks::kMaxBlockThreads)) / kWarp;
  return static_cast<std::uint32_t>(std::max<std::size_t>(warps, 1) * kWarp);
}

std::vector<std::uint64_t> play_messages(const MessageGame& game, const DeviceInfo& device, const SampleClock& clock) {
  KernelRing ring = take(KernelRing::open(device.index, {.ring_bytes = ring_bytes_for(game.data_bytes)}));
  const DeviceMemory memory = take(DeviceMemory::allocate(device.index, std::max<std::size_t>(game.data_bytes, 8)));
  CallPlan plan{.rounds = game.rounds,
                .data_bytes = game.data_bytes,
                .timeout_ns = static_cast<std::uint64_t>(game.timeout_seconds * 1e9),
                .from_cpu = ring.from_cpu(),
                .to_cpu = ring.to_cpu(),
                .words = static_cast<std::uint32_t*>(memory.address())};
  Result<device_ranks::AwaitKernel> started = device.is_stand_in ? Result<device_ranks::AwaitKernel>(play_kernel(CallBody{plan}))
                                                                 : start_calls(device.index, plan, game.threads);
  const device_ranks::AwaitKernel await_kernel = take(std::move(started));
  const std::uint64_t deadline_ns = device::now_ns() + plan.timeout_ns;
  Words sent(game.data_bytes / sizeof(std::uint32_t)), answer(sent.size());
  std::vector<std::uint64_t> ticks;
  ticks.reserve(game.rounds);
  {
    const Stop stop(ring);
    for (std::uint32_t round = 1; round <= game.rounds; ++round) {
      fill(sent, round);
      const std::uint64_t now_ns = device::now_ns();
      const Timeout left(std::chrono::nanoseconds(deadline_ns > now_ns ? deadline_ns - now_ns : 0));
      const std::uint64_t start = clock.now();
      const Result<std::uint64_t> bytes = ring.call(sent.data(), game.data_bytes, answer.data(), game.data_bytes, left);
      const std::uint64_t elapsed = clock.now() - start;
      if (!bytes) {
        const char* const label = device.is_stand_in ? " [stand-in]" : "";
        fail(fmt::format("no answer to round {} within {} s{}: {}; a longer -u gives it more time", round, game.timeout_seconds,
                         label, bytes.error().message()));
      }
      check_answer(sent, answer, *bytes, round);
      if (round > game.warm_up_count) ticks.push_back(elapsed);
    }
  }
  static_cast<void>(take(await_kernel()));
  return ticks;
}

}  // namespace gigabar::tool
