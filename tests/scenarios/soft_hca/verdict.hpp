// SPDX-License-Identifier: Apache-2.0
// Whether what happened is what is documented.
#pragma once

#include <string>

#include "scenarios/soft_hca/run.hpp"

namespace gigabar::tool::softhca {

// What is not as documented; empty when all of it is. Says nothing of a run that was interrupted.
std::string judge(const Plan& plan, const CaseResult& result);

// What each operation of the case ended with: "97 ok, 1 timed_out, then ok".
std::string ends_text(const CaseResult& result);

}  // namespace gigabar::tool::softhca
