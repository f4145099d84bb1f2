// SPDX-License-Identifier: Apache-2.0
// A topology prepared for printing: the ends of its matrix with their short names.
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

class View {
 public:
  explicit View(Topology topology);

  const Topology& topology() const noexcept { return topology_; }
  // GPUs, then NICs, as ends_of() has them.
  const std::vector<End>& ends() const noexcept { return ends_; }
  End end_of(Endpoint point) const;
  // Of a GPU, its NICs in the order in which it should use them. Those with RDMA, unless no NIC has it. Null: it is no GPU.
  const NicOrder* nic_order(const End& end) const;
  // Of an index into Topology::pci: the GPU or the NICs that it is, "GPU0" or "NIC2 NIC3"; empty: neither.
  std::string mark(int pci) const;

 private:
  Topology topology_;
  std::vector<End> ends_;
  std::vector<NicOrder> nic_orders_;  // by index into Topology::gpus
};

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

// --- The forms in which `gigabar topology` shows a machine ---------------------------------------------------------------------

// The matrix, what its names and symbols mean, and rate and bottleneck of each pair: distinct combinations where there are many
// pairs, all of them with every hop when `has_all_routes`.
void print_matrix(Report& report, const View& view, bool has_all_routes);

// NUMA nodes, root complexes, bridges and devices, each below the one it hangs on.
void print_tree(Report& report, const View& view);

// Has Graphviz's `dot` draw the machine as SVG, and writes that to the file. Ends the command when there is no such program, when
// it fails or takes longer than `most_seconds`, and when the file cannot be written.
void write_svg(const View& view, const std::string& title, const std::string& path, double most_seconds);

}  // namespace gigabar::tool::topology
