// SPDX-License-Identifier: Apache-2.0
// What `gigabar matrix` shows at rank 0: tables, lines that name what is slow, the document, CSV and a heat map.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "matrix/figures.hpp"
#include "matrix/places.hpp"
#include "support/report.hpp"

namespace gigabar::tool::matrix {

// One measure of a job, judged.
struct Shown {
  const Figures& figures;
  const Judgement& judgement;
  const std::vector<std::string>& path_texts;
  const Places& places;

  bool is_latency() const noexcept { return judgement.is_latency; }
  std::string_view measure() const noexcept { return is_latency() ? "latency" : "bandwidth"; }
  std::string_view unit() const noexcept { return is_latency() ? "us" : "GB/s"; }
};

// "host node3, sending: bandwidth 0.50 of what such paths have (28 paths); rank 6 to rank 9: 0.02 GB/s instead of 0.05, ucx host".
std::string line_of(const Shown& shown, std::size_t slow_index);

// Rows send, columns receive: as many lines as ranks.
inline constexpr std::size_t kMaxRanksInTable = 16;
std::string table_of(const Shown& shown);
// For each kind of paths: how many, the usual figure, the worst one and which path has it.
std::string summary_of(const Shown& shown);

Json document_of(const Shown& shown);

// A line for each path under a line of headings; latency, rate, what share they are of what is usual, path.
std::string csv_of(const Shown* latency, const Shown* bandwidth);

// A heat map of each measure, and what is slow below it. More than kMaxCells ranks share cells, which show the slowest path in
// them.
inline constexpr std::size_t kMaxCells = 128;
std::string svg_of(const std::vector<const Shown*>& all, const std::string& title);

}  // namespace gigabar::tool::matrix
