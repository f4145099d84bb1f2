// SPDX-License-Identifier: Apache-2.0
// Graphviz's program `dot`, run as a child process.
#pragma once

#include <string>

namespace gigabar::tool::topology {

// Has `dot` draw the graph as SVG, and writes that to the file. Ends the command when there is no such program, when it fails or
// takes longer than `most_seconds`, and when the file cannot be written.
void write_svg(const std::string& graph, const std::string& path, double most_seconds);

}  // namespace gigabar::tool::topology
