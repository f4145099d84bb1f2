// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of these commands: on a GPU, or as threads of the CPU over the memory of a stand-in.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device_ranks/unit.hpp"
#include "gigabar/device.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks {

struct KernelRun {
  std::vector<UnitEnd> ends;           // by unit
  std::vector<std::uint64_t> samples;  // ticks of each round of each unit; of the active side
};

// Nanoseconds of one of a unit's ticks; 0: it had no part.
inline double ns_per_tick(const UnitEnd& end) noexcept {
  return end.elapsed_ticks > 0 ? static_cast<double>(end.elapsed_ns) / static_cast<double>(end.elapsed_ticks) : 0.0;
}

// Waits for the end of a kernel that runs, which its own deadline bounds. Without a call, its last copy waits.
using AwaitKernel = std::function<Result<KernelRun>()>;

// Each blocks until its kernel has ended, which the kernel's own deadline bounds. Errors: invalid_argument (more blocks than the
// device holds at once), out_of_memory, device_error, unavailable (not built). How the rounds went is told in the ends.
Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid);
Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid);

// A kernel that is launched again and again.
struct RepeatedKernel {
  // Launches it and waits for its end. Of pingpong: the rounds that are checked and computed, kNoRound (unit.hpp) for nothing
  // of that kind; of matvec: a MatvecTask, and the batch that is multiplied. Errors: as run_rounds.
  std::function<Result<void>(std::uint32_t first, std::uint32_t second)> run;
  // What all launches found wrong.
  std::function<Result<std::vector<UnitEnd>>()> ends;
};
Result<RepeatedKernel> open_turn_kernel(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid);
// Its units are blocks, each with fast memory of its own (shared memory). Errors: also invalid_argument (not enough fast memory).
Result<RepeatedKernel> open_matvec(const DeviceInfo& device, const MatvecPlan& plan, const Grid& grid);

// The same on the GPU; unavailable in a build without nvcc.
namespace gpu {
Result<KernelRun> run_rounds(int device, const RoundPlan& plan, const Grid& grid);
Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid);
Result<RepeatedKernel> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid);
Result<RepeatedKernel> open_matvec(int device, const MatvecPlan& plan, const Grid& grid);
}  // namespace gpu

}  // namespace gigabar::tool::device_ranks
