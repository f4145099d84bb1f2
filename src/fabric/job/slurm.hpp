// SPDX-License-Identifier: Apache-2.0
// What Slurm tells the tasks of a step by itself, without PMIx.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gigabar/fabric_options.hpp"
#include "gigabar/status.hpp"

namespace gigabar::fabric {

struct SlurmStep {
  Rank rank = 0;
  Rank rank_count = 1;
  std::optional<Rank> local_rank;
};

// The step of which this process is a task (SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID). Nothing outside of
// a step that srun started: in a batch script, in a shell of salloc. Errors: invalid_argument naming the variables that are
// missing, or the one that is malformed.
Result<std::optional<SlurmStep>> slurm_step();

// Whether the environment has all that ranks need to meet, but for what `options` say. Errors: invalid_argument naming the
// variables that are missing.
Result<void> require_whole_step(const FabricOptions& options);

// The first node of the step: every distribution of tasks but 'arbitrary' puts rank 0 there. Errors: invalid_argument (no or a
// malformed node list, tasks in arbitrary order).
Result<std::string> slurm_master();

// Another port for each step that may run on the same node: 21000 + (97 x SLURM_JOB_ID + SLURM_STEP_ID) mod 8191. That is below the
// ports that the kernel gives to connections (32768 to 60999) and torchrun's 29500. Steps 0 to 96 of 84 jobs in a row differ.
// Errors: invalid_argument naming the variable that is missing or malformed.
Result<std::uint16_t> slurm_port();

// The first name of one of Slurm's node lists: "gpu003" of "gpu[003-010,12],login1". The rest of the list is checked too. Errors:
// invalid_argument naming `variable`.
Result<std::string> first_node(const char* variable, std::string_view list);

}  // namespace gigabar::fabric
