// SPDX-License-Identifier: Apache-2.0
// Numbers that launchers leave in the environment, and how what is wrong with them is told.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::fabric {

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
