// SPDX-License-Identifier: Apache-2.0
// gigabar::availability() of a machine whose parts are already known.
#pragma once

#include <vector>

#include "doctor/check.hpp"

namespace gigabar::doctor {

std::vector<PathReport> availability_of(const Patient& patient);

}  // namespace gigabar::doctor
