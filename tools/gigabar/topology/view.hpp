// SPDX-License-Identifier: Apache-2.0
// The forms in which `gigabar topology` shows a machine.
#pragma once

#include <string>

#include "gigabar/topology.hpp"
#include "support/report.hpp"

namespace gigabar::tool::topology {

// The matrix, what its names and symbols mean, and rate and bottleneck of each pair: distinct combinations where there are many
// pairs, all of them with every hop when `has_all_routes`.
void print_matrix(Report& report, const Topology& topology, bool has_all_routes);

// NUMA nodes, root complexes, bridges and devices, each below the one it hangs on.
void print_tree(Report& report, const Topology& topology);

// As a graph in the DOT language, which Graphviz draws.
std::string drawing(const Topology& topology, const std::string& title);

}  // namespace gigabar::tool::topology
