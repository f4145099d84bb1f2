// SPDX-License-Identifier: Apache-2.0
// How a case is shown: a row, and a line about its fault.
#pragma once

#include <string>

#include "scenarios/soft_hca/run.hpp"
#include "support/report.hpp"

namespace gigabar::tool::softhca {

Row row_of(const Plan& plan, const CaseResult& result, const std::string& complaint);
// "error:3: 1 request failed; 2 ok; 1 peer_lost (retries_exceeded); expected: ..."
std::string fault_line(const Options& options, const CaseResult& result);

}  // namespace gigabar::tool::softhca
