// SPDX-License-Identifier: Apache-2.0
// The lines that rank 0 prints: what does not begin with '#' is data, and its first columns are those of the OSU micro-benchmarks,
// to the letter, so that what reads theirs reads these.
#pragma once

#include <string>
#include <string_view>

#include "ranks/plan.hpp"
#include "ranks/results.hpp"

namespace gigabar::tool::ranks {

// "# Gigabar 0.1.0 Latency Test: send", whose buffers are where, pairs and window, and the headings of the columns; each with its
// line end.
std::string title_lines(const Plan& plan, std::string_view version, std::uint32_t pair_count);
std::string column_line(const Plan& plan);

// One size. `other`: the same with gdr and p2p forbidden; null without --compare.
std::string row(const Plan& plan, const SizeResult& result, const SizeResult* other);

}  // namespace gigabar::tool::ranks
