// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a job are: their hosts, the rails that they use between hosts, and the switches that hosts are behind.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "matrix/find_slow.hpp"

namespace gigabar::tool::matrix {

// What a rank says of itself.
struct Whereabouts {
  std::string host;     // its name
  std::string machine;  // the same text at ranks of one host, another at hosts of the same name
  std::string rails;    // of what it writes to other hosts; empty: not known, or not always the same
  std::string tree;     // switch that Slurm names; empty: none
};

// Hosts by the name of their switch.
using Switches = std::map<std::string, std::string>;  // switch of each host

// "leaf1 node1 node2": a switch on each line, and the hosts behind it; '#' before comments. Ends the command as bad usage where a
// host is behind two switches, or a line has no host.
Switches parse_switches(std::string_view text, const std::string& path);
Switches read_switches(const std::string& path);

// The switch next to this node in Slurm's tree; empty where Slurm says nothing. Source: SLURM_TOPOLOGY_ADDR and
// SLURM_TOPOLOGY_ADDR_PATTERN in srun(1).
std::string switch_of_slurm(const char* address, const char* pattern);

// As people call it: a group of hosts is a switch.
std::string_view label_of(Part part) noexcept;

// Numbers of Placement, and the names behind them.
struct Places {
  std::vector<Placement> ranks;
  std::vector<std::string> hosts, rails, groups;

  // "host 2 (node3)".
  std::string text(const Slow& slow) const;

 private:
  std::string name_of(Part part, int number) const;
};

// Without `switches`, those of Slurm count. Hosts of which no switch is known have none (-1), and are compared with one another.
Places places_of(std::span<const Whereabouts> ranks, const Switches& switches);

}  // namespace gigabar::tool::matrix
