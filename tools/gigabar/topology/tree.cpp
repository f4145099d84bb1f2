// SPDX-License-Identifier: Apache-2.0
// NUMA nodes, root complexes, bridges and devices as an indented tree.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/counted.hpp"
#include "support/plain_text.hpp"
#include "topology/output.hpp"

namespace gigabar::tool::topology {
namespace {

constexpr std::size_t kMaxDepth = 64;

class Tree {
 public:
  Tree(Report& report, const View& view) : report_(report), view_(view), topology_(view.topology()) {
    const std::size_t count = topology_.pci.size();
    children_.resize(count);
    shown_below_.resize(count);
    nodes_.assign(count, kUnknownNode);
    // Children stand behind their parents, so that what is known of them reaches the top in one pass from the end.
    for (std::size_t i = count; i-- > 0;) {
      const bool is_shown = is_interesting(i) || shown_below_[i];
      if (topology_.pci[i].numa_node >= 0) nodes_[i] = topology_.pci[i].numa_node;
      if (!is_shown) hidden_count_ += topology_.pci[i].is_bridge ? 0 : 1;
      if (!is_shown) continue;
      const int parent = parent_of(topology_, i);
      if (parent < 0) {
        roots_[nodes_[i]][topology_.pci[i].root_complex].push_back(i);
        continue;
      }
      const auto above = static_cast<std::size_t>(parent);
      shown_below_[above] = true;
      children_[above].push_back(i);
      nodes_[above] = std::max(nodes_[above], nodes_[i]);
    }
  }

  void print() {
    for (const NumaNode& node : topology_.numa_nodes) print_numa_node(node.index);
    print_numa_node(kUnknownNode);
    for (const auto& [node, complexes] : std::map(roots_)) print_numa_node(node);  // of nodes that the machine does not list
    print_others();
    if (hidden_count_ > 0) {
      report_.print("not shown: {}, neither GPU, network, storage nor accelerator\n", counted(hidden_count_, "other PCI device"));
    }
  }

 private:
  static constexpr int kUnknownNode = -1;

  // Display, network, NVMe and accelerators (PCI Code and ID Assignment Specification, class codes).
  bool is_interesting(std::size_t pci) const {
    const std::uint32_t class_code = topology_.pci[pci].class_code;
    const std::uint32_t base = class_code >> 16U;
    return !view_.mark(static_cast<int>(pci)).empty() || base == 0x03 || base == 0x02 || base == 0x12 ||
           (class_code >> 8U) == 0x0108;
  }

  void print_numa_node(int number) {
    const auto found = roots_.find(number);
    if (number == kUnknownNode && found == roots_.end()) return;
    if (number == kUnknownNode) {
      report_.print("NUMA node unknown\n");
    } else {
      report_.print("{}\n", node_text(topology_, number));
    }
    if (found == roots_.end()) return;
    for (auto& [complex, devices] : found->second) {
      report_.print("  root complex {}\n", complex.empty() ? "unknown" : plain(complex, 64));
      std::reverse(devices.begin(), devices.end());
      for (const std::size_t device : devices) print_device(device, 2);
    }
    roots_.erase(found);
  }

  void print_device(std::size_t pci, std::size_t depth) {
    if (depth > kMaxDepth) {
      report_.print("{:{}}...\n", "", 2 * depth);
      return;
    }
    const PciNode& node = topology_.pci[pci];
    const std::string mark = view_.mark(static_cast<int>(pci));
    const std::string link = link_text(node.link);
    report_.print("{:{}}{}{} {}{}{}{}\n", "", 2 * depth, mark.empty() ? "" : "[" + mark + "] ", node.address.to_string(),
                  node.is_bridge ? "bridge " : "", name_of(pci), link.empty() ? "" : ", " + link, names_of(pci));
    std::vector<std::size_t>& below = children_[pci];
    std::reverse(below.begin(), below.end());
    for (const std::size_t child : below) print_device(child, depth + 1);
  }

  // The driver knows a GPU by a better name than a PCI database that is older than it.
  std::string name_of(std::size_t pci) const {
    for (const Gpu& gpu : topology_.gpus) {
      if (gpu.pci == static_cast<int>(pci) && !gpu.name.empty()) return plain(gpu.name, 120);
    }
    return device_text(topology_.pci[pci]);
  }

  // What the drivers call it: ", mlx5_0, eth0".
  std::string names_of(std::size_t pci) const {
    std::string names;
    for (const End& end : view_.ends()) {
      if (end.point.kind != Endpoint::Kind::nic || end.pci != static_cast<int>(pci)) continue;
      const Nic& nic = topology_.nics[static_cast<std::size_t>(end.point.index)];
      if (!nic.rdma_device.empty()) names += ", " + plain(nic.rdma_device, 64);
      for (const NetDevice& device : nic.net_devices) names += ", " + plain(device.name, 64);
    }
    return names;
  }

  void print_others() {
    for (const End& end : view_.ends()) {
      if (element(topology_.pci, end.pci) == nullptr)
        report_.print("not in the PCI tree: [{}] {}\n", end.label, view_.text_of(end));
    }
  }

  Report& report_;
  const View& view_;
  const Topology& topology_;
  std::vector<std::vector<std::size_t>> children_;  // in reverse
  std::vector<bool> shown_below_;
  std::vector<int> nodes_;
  std::map<int, std::map<std::string, std::vector<std::size_t>>> roots_;  // by NUMA node and root complex, in reverse
  std::size_t hidden_count_ = 0;
};

void print_nvlinks(Report& report, const Topology& topology) {
  for (const NvLinkBond& bond : topology.nvlinks) {
    report.print("GPU{} - GPU{}: {} NVLinks{}{}\n", bond.first, bond.second, bond.count,
                 bond.is_switched ? " through NVSwitches" : "",
                 bond.gb_per_s > 0 ? fmt::format(", {:.1f} GB/s each way", bond.gb_per_s) : "");
  }
}

}  // namespace

void print_tree(Report& report, const View& view) {
  if (view.topology().gpus.empty()) report.print("no NVIDIA GPU\n");
  Tree(report, view).print();
  print_nvlinks(report, view.topology());
}

}  // namespace gigabar::tool::topology
