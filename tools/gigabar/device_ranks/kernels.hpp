// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of these commands: on a GPU, or as threads of the CPU over the memory of a stand-in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device_ranks/grid.hpp"
#include "device_ranks/matvec_plan.hpp"
#include "device_ranks/round_plan.hpp"
#include "device_ranks/turn_plan.hpp"
#include "device_ranks/unit_end.hpp"
#include "gigabar/device.hpp"
#include "gigabar/status.hpp"

namespace gigabar::tool::device_ranks {

struct KernelRun {
  std::vector<UnitEnd> ends;           // by unit
  std::vector<std::uint64_t> samples;  // ticks of each round of each unit; of the active side
};

// Each blocks until its kernel has ended, which the kernel's own deadline bounds. Errors: invalid_argument (more blocks than the
// device holds at once), out_of_memory, device_error, unavailable (not built). How the rounds went is told in the ends.
Result<KernelRun> run_rounds(const DeviceInfo& device, const RoundPlan& plan, const Grid& grid);
Result<KernelRun> run_turns(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid);

// The kernel of one turn of pingpong, launched again and again.
class TurnKernel {
 public:
  virtual ~TurnKernel() = default;
  // Launches it and waits for its end. kNoRound (turn_plan.hpp): nothing of that kind.
  virtual Result<void> run(std::uint32_t checked_round, std::uint32_t computed_round) = 0;
  // What all launches found wrong.
  virtual Result<std::vector<UnitEnd>> ends() = 0;
};
Result<std::unique_ptr<TurnKernel>> open_turn_kernel(const DeviceInfo& device, const TurnPlan& plan, const Grid& grid);

// Kernels of matvec, launched one by one; their units are blocks, each with fast memory of its own (shared memory).
class MatvecKernels {
 public:
  virtual ~MatvecKernels() = default;
  // Launches one and waits for its end. `batch`: of multiply. Errors: as run_rounds; invalid_argument (not enough fast memory).
  virtual Result<void> run(MatvecTask task, std::uint32_t batch) = 0;
  // Of the last stream.
  virtual Result<std::vector<UnitEnd>> ends() = 0;
};
Result<std::unique_ptr<MatvecKernels>> open_matvec(const DeviceInfo& device, const MatvecPlan& plan, const Grid& grid);

// The same on the GPU; unavailable in a build without nvcc.
namespace gpu {
Result<KernelRun> run_rounds(int device, const RoundPlan& plan, const Grid& grid);
Result<KernelRun> run_turns(int device, const TurnPlan& plan, const Grid& grid);
Result<std::unique_ptr<TurnKernel>> open_turn_kernel(int device, const TurnPlan& plan, const Grid& grid);
Result<std::unique_ptr<MatvecKernels>> open_matvec(int device, const MatvecPlan& plan, const Grid& grid);
}  // namespace gpu

}  // namespace gigabar::tool::device_ranks
