// SPDX-License-Identifier: Apache-2.0
// Which launcher started this process, by the variables that it leaves, and how what is wrong with those is told.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/job/job.hpp"

namespace gigabar::fabric {

// GIGABAR_LAUNCHER when it is set, else what the environment shows: pmix, environment, slurm, or none for a process that is no part
// of a larger job. A launcher that says that its job has one process counts as none. Errors: invalid_argument naming the variable
// that is wrong: GIGABAR_LAUNCHER, half an environment, or that of a launcher whose ranks cannot find each other.
Result<Launcher> find_launcher();

// This process's rank as its launcher wrote it, "0" when none did: for what has to be known of a rank that has no job yet.
std::string stated_rank();

inline constexpr std::uint64_t kMaxRanks = 1U << 20;
inline constexpr const char* kJobRemedy =
    "start the program with 'gigabar run', mpirun, srun or torchrun, or set all of RANK, WORLD_SIZE, MASTER_ADDR "
    "and MASTER_PORT; GIGABAR_LAUNCHER=none makes this process a job of its own";

// invalid_argument; `object` is the variable or option that is wrong.
Error refuse_job(const std::string& object, std::string cause, std::string remedy = kJobRemedy);

// Whether the environment has it. Null: it has not.
bool is_set(const char* variable);

// One of several variables that belong together.
struct NeededVariable {
  const char* name;
  bool is_there;  // it is set, or something else that says the same
};
// Errors: invalid_argument that names every variable that is not there, beside those that are.
Result<void> require_all(std::span<const NeededVariable> variables, std::string remedy = kJobRemedy);

// Nothing when the variable is not set. Errors: invalid_argument naming the variable.
Result<std::optional<std::uint64_t>> number_from(const char* variable, std::uint64_t min, std::uint64_t max);

// --- What Slurm tells the tasks of a step by itself, without PMIx ---------------------------------------------------------------

// The step of which this process is a task (SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID). Nothing outside of
// a step that srun started: in a batch script, in a shell of salloc. Errors: invalid_argument naming the variables that are
// missing, or the one that is malformed.
Result<std::optional<OwnRank>> slurm_step();

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
