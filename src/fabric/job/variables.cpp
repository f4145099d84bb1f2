// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/variables.hpp"

#include <ranges>

#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::fabric {
namespace {

// "RANK", "RANK and WORLD_SIZE", "RANK, WORLD_SIZE and MASTER_ADDR".
std::string list_of(std::span<const NeededVariable> variables, bool are_there, std::size_t& count) {
  count = 0;
  std::string list;
  for (const NeededVariable& variable : std::views::reverse(variables)) {
    if (variable.is_there != are_there) continue;
    list = text(variable.name, count == 0 ? "" : count == 1 ? " and " : ", ", list);
    ++count;
  }
  return list;
}

}  // namespace

Error refuse_job(const std::string& object, std::string cause, std::string remedy) {
  return make_error(Status::invalid_argument, "find the job", object, std::move(cause), std::move(remedy));
}

bool is_set(const char* variable) { return variable != nullptr && environment(variable).has_value(); }

Result<void> require_all(std::span<const NeededVariable> variables, std::string remedy) {
  std::size_t missing_count = 0, there_count = 0;
  const std::string missing = list_of(variables, false, missing_count);
  if (missing_count == 0) return {};
  const std::string there = list_of(variables, true, there_count);
  const char* const are_not = missing_count == 1 ? " is not" : " are not";
  const std::string cause =
      there_count == 0 ? text("none of them is set") : text(there, there_count == 1 ? " is set, " : " are set, ", missing, are_not);
  return refuse_job(missing, cause, std::move(remedy));
}

Result<std::optional<std::uint64_t>> number_from(const char* variable, std::uint64_t min, std::uint64_t max) {
  const auto value = environment(variable);
  if (!value) return std::optional<std::uint64_t>();
  const auto number = parse_number(*value, min, max);
  if (!number) return refuse_job(variable, text("'", value->substr(0, 64), "' is not a number from ", min, " to ", max));
  return number;
}

}  // namespace gigabar::fabric
