// SPDX-License-Identifier: Apache-2.0
// Which launcher started this process, by the variables that it leaves, and how what is wrong with those is told.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

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

}  // namespace gigabar::fabric
