// SPDX-License-Identifier: Apache-2.0
// Which path operations took, as their reports say: a few words for a column, everything for a document.
#pragma once

#include <span>
#include <string>

#include "gigabar/fabric.hpp"
#include "support/report.hpp"

namespace gigabar::tool::ranks {

struct PathUse {
  std::string text;              // "verbs staged (rxe0/1)"; empty: no operation
  Json detail = Json::object();  // of the last one, and every other that differs
};

// "local p2p", "verbs gdr (mlx5_0/1, mlx5_1/1)"; the transport alone when nothing was to be moved. The rail of the local transport
// is never a choice and is left out.
std::string path_text(const OperationReport& report);
Json to_json(const OperationReport& report);
// Of a few operations of one size. Where they differ (rails taking turns, say) each text stands once, in order of appearance.
PathUse path_use_of(std::span<const OperationReport> reports);

}  // namespace gigabar::tool::ranks
