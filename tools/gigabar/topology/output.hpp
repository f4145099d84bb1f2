// SPDX-License-Identifier: Apache-2.0
// The forms in which `gigabar topology` shows a machine.
#pragma once

#include <string>

#include "support/report.hpp"
#include "topology/view.hpp"

namespace gigabar::tool::topology {

// The matrix, what its names and symbols mean, and rate and bottleneck of each pair: distinct combinations where there are many
// pairs, all of them with every hop when `has_all_routes`.
void print_matrix(Report& report, const View& view, bool has_all_routes);

// NUMA nodes, root complexes, bridges and devices, each below the one it hangs on.
void print_tree(Report& report, const View& view);

Json to_json(const View& view);

// The machine as a graph in the DOT language.
std::string dot_text(const View& view, const std::string& title);

// Has `dot` draw the graph as SVG, and writes that to the file. Ends the command when there is no such program, when it fails or
// takes longer than `most_seconds`, and when the file cannot be written.
void write_svg(const std::string& graph, const std::string& path, double most_seconds);

}  // namespace gigabar::tool::topology
