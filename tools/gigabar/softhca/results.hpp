// SPDX-License-Identifier: Apache-2.0
// How a case is shown: a row, a line about its fault, and JSON.
#pragma once

#include <string>
#include <vector>

#include "scenarios/soft_hca/run.hpp"
#include "support/report.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::softhca {

TextTable make_table(const Plan& plan);
std::vector<std::string> row_of(const Options& options, const CaseResult& result, const std::string& complaint);
// "error:3: 1 request failed; 2 ok; 1 peer_lost (retries_exceeded); expected: ..."
std::string fault_line(const Options& options, const CaseResult& result);
Json to_json(const Plan& plan, const CaseResult& result, const std::string& complaint);

}  // namespace gigabar::tool::softhca
