// SPDX-License-Identifier: Apache-2.0
#include "fabric/job/variables.hpp"

#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::fabric {

Error refuse_job(const std::string& object, std::string cause, std::string remedy) {
  return make_error(Status::invalid_argument, "find the job", object, std::move(cause), std::move(remedy));
}

Result<std::optional<std::uint64_t>> number_from(const char* variable, std::uint64_t min, std::uint64_t max) {
  const auto value = environment(variable);
  if (!value) return std::optional<std::uint64_t>();
  const auto number = parse_number(*value, min, max);
  if (!number) return refuse_job(variable, text("'", value->substr(0, 64), "' is not a number from ", min, " to ", max));
  return number;
}

}  // namespace gigabar::fabric
