// SPDX-License-Identifier: Apache-2.0
// How a command ends when a call of the fabric fails: as support/failure.hpp, and with the status.
#pragma once

#include <string>
#include <utility>

#include "gigabar/status.hpp"
#include "support/failure.hpp"

namespace gigabar::tool::ranks {

class FabricFailure : public CommandFailure {
 public:
  FabricFailure(Status status, const std::string& message) : CommandFailure(kExitFailed, message), status_(status) {}
  Status status() const noexcept { return status_; }

 private:
  Status status_;
};

// The value, or the command's end with the error's own line.
template <class T>
T take_from_fabric(Result<T> result) {
  if (!result) throw FabricFailure(result.status(), result.error().message());
  return std::move(result).value();
}

inline void require_of_fabric(const Result<void>& outcome) {
  if (!outcome) throw FabricFailure(outcome.status(), outcome.message());
}

}  // namespace gigabar::tool::ranks
