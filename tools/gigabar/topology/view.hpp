// SPDX-License-Identifier: Apache-2.0
// The forms in which `gigabar topology` shows a machine, and what they have in common.
#pragma once

#include <string>
#include <vector>

#include "gigabar/topology.hpp"
#include "support/report.hpp"

namespace gigabar::tool::topology {

struct End {
  Endpoint point;
  std::string label;  // "GPU0", "NIC0", "host 0": numbers are indexes into the topology; "host N" is NUMA node N
  int numa_node = -1;
  int pci = -1;  // of GPUs and NICs, an index into Topology::pci
};

End end_of(const Topology& topology, Endpoint point);
// GPUs, then NICs, as ends_of() has them.
std::vector<End> shown_ends(const Topology& topology);

// The element of that index, or nothing: indexes of a topology may be -1.
template <class T>
const T* element(const std::vector<T>& all, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < all.size() ? &all[static_cast<std::size_t>(index)] : nullptr;
}

// CPUs of a NUMA node, "0-15,32"; "unknown" without one, "none" for a node of memory only.
std::string cpus_text(const Topology& topology, int numa_node);
// "PCIe 4.0 x8 of PCIe 5.0 x16": as it runs now, and what the device can do where that is more. Empty: not told.
std::string link_text(const PciLinkFacts& link);
// Name of a PCI device, fit for printing.
std::string device_text(const PciNode& node);

// The matrix, what its names and symbols mean, and rate and bottleneck of each pair: distinct combinations where there are many
// pairs, all of them with every hop when `has_all_routes`.
void print_matrix(Report& report, const Topology& topology, bool has_all_routes);

// NUMA nodes, root complexes, bridges and devices, each below the one it hangs on.
void print_tree(Report& report, const Topology& topology);

}  // namespace gigabar::tool::topology
