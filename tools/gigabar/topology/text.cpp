// SPDX-License-Identifier: Apache-2.0
// A machine in words: its parts, the matrix of GPUs and NICs with what its cells are worth, and the tree; and as a graph for
// Graphviz.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "doctor/members.hpp"
#include "platform/cpu_set.hpp"
#include "platform/pci_link.hpp"
#include "support/plain_text.hpp"
#include "topology/view.hpp"

namespace gigabar::tool::topology {
namespace {

constexpr std::size_t kMaxPartsOfList = 24;

struct End {
  Endpoint point;
  std::string label;  // "GPU0", "NIC0", "host 0": numbers are indexes into the topology; "host N" is NUMA node N
  int numa_node = -1;
  int pci = -1;  // of GPUs and NICs, an index into Topology::pci
  const Gpu* gpu = nullptr;
  const Nic* nic = nullptr;
};

// The element of that index, or nothing: indexes of a topology may be -1.
template <class T>
const T* element(const std::vector<T>& all, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < all.size() ? &all[static_cast<std::size_t>(index)] : nullptr;
}

std::string gpu_text(const Gpu& gpu) {
  std::string text = gpu.name.empty() ? "GPU of unknown name" : plain(gpu.name, 120);
  text += " at " + gpu.address.to_string();
  if (gpu.pci < 0) text += " (not in the PCI tree)";
  if (gpu.cuda_index) text += fmt::format(", CUDA {}", *gpu.cuda_index);
  if (gpu.nvlinks_total > 0) text += fmt::format(", {} of {} NVLinks active", gpu.nvlinks_active, gpu.nvlinks_total);
  if (gpu.is_coherent) text += ", coherent with its CPU";
  return text;
}

// "mlx5_0, eth0 at 0000:3b:00.0, mlx5_core, port 1 ACTIVE InfiniBand 400 Gb/s".
std::string nic_text(const Topology& topology, const Nic& nic) {
  std::string text = plain(nic.rdma_device.empty() ? nic.name : nic.rdma_device, 64);
  for (const NetDevice& device : nic.net_devices) {
    if (device.name != nic.name || !nic.rdma_device.empty()) text += ", " + plain(device.name, 64);
  }
  const PciNode* const node = element(topology.pci, nic.pci);
  text += node == nullptr ? ", no PCI device" : " at " + node->address.to_string();
  text += nic.driver.empty() ? ", no driver" : ", " + plain(nic.driver, 64);
  if (nic.rdma_device.empty()) text += ", no RDMA";
  for (const RdmaPort& port : nic.ports) {
    text += fmt::format(", port {} {}", port.number, port.state.empty() ? "of unknown state" : plain(port.state, 32));
    if (!port.link_layer.empty()) text += " " + plain(port.link_layer, 32);
    if (port.rate_gbit_per_s > 0) text += fmt::format(" {:g} Gb/s", port.rate_gbit_per_s);
  }
  for (const NetDevice& device : nic.net_devices) {
    if (!nic.ports.empty()) break;
    text += fmt::format(", link {}", device.state.empty() ? "unknown" : plain(device.state, 32));
    if (device.gbit_per_s) text += fmt::format(" {:g} Gb/s", *device.gbit_per_s);
  }
  return text;
}

// What a GPU or NIC is, in words.
std::string text_of(const Topology& topology, const End& end) {
  return end.gpu != nullptr ? gpu_text(*end.gpu) : nic_text(topology, *end.nic);
}

// What is no generation of PCIe (PCI Express Base Specification, sections on link speeds) is told as a number.
std::string speed_text(double gt_per_s, unsigned width) {
  const std::string name = PcieLink{gt_per_s, width}.name();
  std::string text = name.substr(0, name.rfind(' '));
  if (!pcie_link_of_speed(gt_per_s, 1)) text = gt_per_s > 0 ? fmt::format("{:g} GT/s", gt_per_s) : "speed unknown";
  return text + (width > 0 ? fmt::format(" x{}", width) : " width unknown");
}

End end_of(const Topology& topology, Endpoint point) {
  const auto index = static_cast<std::size_t>(point.index);
  if (point.kind == Endpoint::Kind::gpu) {
    const Gpu& gpu = topology.gpus[index];
    return {point, fmt::format("GPU{}", index), gpu.numa_node, gpu.pci, &gpu, nullptr};
  }
  if (point.kind == Endpoint::Kind::nic) {
    const Nic& nic = topology.nics[index];
    return {point, fmt::format("NIC{}", index), nic.numa_node, nic.pci, nullptr, &nic};
  }
  const int number = topology.numa_nodes[index].index;
  return {point, fmt::format("host {}", number), number};
}

// GPUs, then NICs, as ends_of() has them.
std::vector<End> shown_ends(const Topology& topology) {
  std::vector<End> ends;
  for (const Endpoint& point : ends_of(topology)) ends.push_back(end_of(topology, point));
  return ends;
}

// CPUs of a NUMA node, "0-15,32"; "unknown" without one, "none" for a node of memory only.
std::string cpus_text(const Topology& topology, int numa_node) {
  const NumaNode* const node = element(topology.numa_nodes, topology.find_numa_node(numa_node));
  if (node == nullptr) return "unknown";
  if (node->cpus.empty()) return "none";
  const std::string list = cpu_list_text(node->cpus);
  std::size_t end = 0;
  for (std::size_t part = 0; part < kMaxPartsOfList && end != std::string::npos; ++part) end = list.find(',', end + 1);
  return end == std::string::npos ? list : list.substr(0, end) + ",...";
}

// "PCIe 4.0 x8 of PCIe 5.0 x16": as it runs now, and what the device can do where that is more. Empty: not told.
std::string link_text(const PciLinkFacts& link) {
  if (link.gt_per_s <= 0 && link.width == 0) return {};
  const std::string now = speed_text(link.gt_per_s, link.width);
  const bool can_more = link.most_gt_per_s > link.gt_per_s || link.most_width > link.width;
  return can_more ? fmt::format("{} of {}", now, speed_text(link.most_gt_per_s, link.most_width)) : now;
}

// Name of a PCI device, fit for printing.
std::string device_text(const PciNode& node) {
  const std::string ids = fmt::format("{:04x}:{:04x}", node.vendor, node.device);
  return node.name.empty() ? ids : plain(node.name, 120);
}

// "NUMA node 0: CPUs 0-15, 64.0 GiB of host memory on this node".
std::string node_text(const Topology& topology, int numa_node) {
  const NumaNode* const node = element(topology.numa_nodes, topology.find_numa_node(numa_node));
  return fmt::format("NUMA node {}: CPUs {}, {:.1f} GiB of host memory on this node", numa_node, cpus_text(topology, numa_node),
                     node == nullptr ? 0.0 : static_cast<double>(node->memory_bytes) / 1073741824.0);
}

// --- The matrix ----------------------------------------------------------------------------------------------------------------

constexpr std::size_t kMaxPairsInFull = 24;
constexpr std::size_t kMaxHopsShown = 32;

// Of each Relation, from near to far, as `nvidia-smi topo -m` orders them.
constexpr std::array<const char*, 8> kMeanings = {"one and the same device, or functions of one",
                                                  "this many NVLinks, directly or through NVSwitches",
                                                  "at most one PCIe bridge or switch between the two",
                                                  "several PCIe bridges or switches, and no host bridge",
                                                  "across one PCIe host bridge, that is through the CPU",
                                                  "across host bridges of one NUMA node",
                                                  "across the link between NUMA nodes",
                                                  "the machine does not tell"};

// Of a GPU, its NICs in the order in which it should use them. Those with RDMA, unless no NIC has it. Null: it is no GPU.
const NicOrder* order_of(const std::vector<NicOrder>& orders, const End& end) {
  return end.gpu != nullptr ? element(orders, end.point.index) : nullptr;
}

std::string nearest_text(const NicOrder* order) {
  return order == nullptr || order->nics.empty() ? "none" : fmt::format("NIC{}", order->nics.front());
}

// Why it is this NIC, where others are as near.
void print_deals(Report& report, const std::vector<End>& ends, const std::vector<NicOrder>& orders) {
  bool has_title = false;
  for (const End& end : ends) {
    const NicOrder* const order = order_of(orders, end);
    if (order == nullptr || order->equal_count < 2) continue;
    if (!std::exchange(has_title, true)) report.print("\n");
    report.print("{} should use {}: {}\n", end.label, nearest_text(order), order->reason);
  }
}

// The relations that stand in it.
std::set<Relation> print_cells(Report& report, const Topology& topology, const std::vector<End>& ends,
                               const std::vector<NicOrder>& orders) {
  std::vector<TextTable::Column> columns = {{"", true}};
  for (const End& end : ends) columns.push_back({end.label, true});
  columns.insert(columns.end(), {{"CPU affinity", true}, {"NUMA", true}});
  if (!topology.gpus.empty()) columns.push_back({"nearest NIC", true});
  TextTable table(std::move(columns));
  std::set<Relation> used;
  for (const End& row : ends) {
    std::vector<std::string> cells = {row.label};
    for (const End& column : ends) {
      const Route between = route_between(topology, row.point, column.point);
      cells.push_back(short_name(between.relation, between.nvlink_count));
      used.insert(between.relation);
    }
    cells.push_back(cpus_text(topology, row.numa_node));
    cells.push_back(row.numa_node < 0 ? "unknown" : std::to_string(row.numa_node));
    if (row.gpu != nullptr) cells.push_back(nearest_text(order_of(orders, row)));
    table.add_row(std::move(cells));
  }
  report.print("{}", table.take_text());
  const std::size_t left_out = topology.gpus.size() + topology.nics.size() - ends.size();
  if (left_out > 0) report.note(fmt::format("not in the matrix: {}", counted(left_out, "more GPU or NIC", "more GPUs and NICs")));
  return used;
}

void print_symbols(Report& report, const std::set<Relation>& used) {
  report.print("\n");
  for (const Relation relation : used) {
    const std::string symbol = relation == Relation::nvlink ? "NV#" : short_name(relation);
    report.print("{:<5} {}\n", symbol, kMeanings.at(static_cast<std::size_t>(relation)));
  }
}

std::string rate_text(const Route& route) { return route.gb_per_s ? fmt::format("{:.1f}", *route.gb_per_s) : "unknown"; }

std::string bottleneck_text(const Route& route) { return route.bottleneck.empty() ? "unknown" : plain(route.bottleneck, 200); }

std::string hops_text(const Route& route) {
  const auto shown = route.hops | std::views::take(kMaxHopsShown) | std::views::transform(&PciAddress::to_string);
  return fmt::format("{}{}", fmt::join(shown, " "), route.hops.size() > kMaxHopsShown ? " ..." : "");
}

// What pairs are alike in, for which one stands.
auto kind_of(const RoutedPair& pair) {
  return std::tuple(pair.first.kind, pair.second.kind, pair.route.relation, pair.route.nvlink_count, rate_text(pair.route));
}

// Of many pairs, one row for each kind; the first pair stands for the others.
void print_pairs(Report& report, const Topology& topology, bool has_all_routes) {
  const std::vector<RoutedPair> pairs = routed_pairs(topology);
  if (pairs.empty()) return;
  const bool is_short = !has_all_routes && pairs.size() > kMaxPairsInFull;
  std::vector<TextTable::Column> columns = {{"pair", true}, {"relation", true}, {"GB/s"}, {"bottleneck", true}};
  if (is_short) columns.push_back({"alike"});
  if (has_all_routes) columns.push_back({"hops", true});
  TextTable table(std::move(columns));
  std::map<decltype(kind_of(pairs.front())), std::size_t> counts;
  for (const RoutedPair& pair : pairs) ++counts[kind_of(pair)];
  for (const RoutedPair& pair : pairs) {
    std::string last = has_all_routes ? hops_text(pair.route) : "";
    if (is_short) {
      const auto alike = counts.extract(kind_of(pair));
      if (alike.empty()) continue;
      last = std::to_string(alike.mapped());
    }
    table.add_row({fmt::format("{} - {}", end_of(topology, pair.first).label, end_of(topology, pair.second).label),
                   short_name(pair.route.relation, pair.route.nvlink_count), rate_text(pair.route), bottleneck_text(pair.route),
                   std::move(last)});
  }
  report.print("\nrates and bottleneck per pair, each way, theoretical\n{}", table.take_text());
  if (is_short)
    report.print("a row stands for all pairs that are alike in kind, relation and rate; '--routes' shows all {}\n", pairs.size());
}

void print_nodes(Report& report, const Topology& topology) {
  report.print("\n");
  for (const NumaNode& node : topology.numa_nodes) report.print("{}\n", node_text(topology, node.index));
  if (topology.numa_nodes.empty()) report.print("NUMA nodes: none told\n");
}

// --- The tree: NUMA nodes, root complexes, bridges and devices, indented -------------------------------------------------------

constexpr std::size_t kMaxDepth = 64;

class Tree {
 public:
  Tree(Report& report, const Topology& topology) : report_(report), topology_(topology), children_(topology.pci.size()) {
    for (const End& end : ends_) add_names(end);
    std::vector<int> nodes(children_.size(), kUnknownNode);
    // Children stand behind their parents, so that what is known of them reaches the top in one pass from the end.
    for (std::size_t i = children_.size(); i-- > 0;) {
      const PciNode& device = topology_.pci[i];
      if (device.numa_node >= 0) nodes[i] = device.numa_node;
      const auto above = static_cast<std::size_t>(device.parent);
      if (children_[i].empty() && !is_interesting(i)) {
        hidden_count_ += device.is_bridge ? 0 : 1;
      } else if (device.parent < 0 || above >= i) {  // at a root; never the device itself or a later one, whatever the machine says
        roots_[nodes[i]][device.root_complex].insert(i);
      } else {
        nodes[above] = std::max(nodes[above], nodes[i]);
        children_[above].insert(i);
      }
    }
  }

  void print() {
    for (const NumaNode& node : topology_.numa_nodes) print_numa_node(node.index);
    print_numa_node(kUnknownNode);
    for (const auto& [node, complexes] : std::map(roots_)) print_numa_node(node);  // of nodes that the machine does not list
    for (const End& end : ends_) {
      if (element(topology_.pci, end.pci) != nullptr) continue;
      report_.print("not in the PCI tree: [{}] {}\n", end.label, text_of(topology_, end));
    }
    if (hidden_count_ > 0) {
      report_.print("not shown: {}, neither GPU, network, storage nor accelerator\n", counted(hidden_count_, "other PCI device"));
    }
  }

 private:
  static constexpr int kUnknownNode = -1;

  // What a PCI device is called beside what the PCI database says.
  struct Names {
    std::string mark;    // the GPU or the NICs that it is: "GPU0", "NIC2 NIC3"
    std::string name;    // of a GPU: the driver knows it by a better one than a database that is older than it
    std::string others;  // what the drivers call it: ", mlx5_0, eth0"
  };

  void add_names(const End& end) {
    Names& names = names_[end.pci];
    names.mark += (names.mark.empty() ? "" : " ") + end.label;
    if (end.gpu != nullptr && names.name.empty()) names.name = plain(end.gpu->name, 120);
    if (end.nic == nullptr) return;
    if (!end.nic->rdma_device.empty()) names.others += ", " + plain(end.nic->rdma_device, 64);
    for (const NetDevice& device : end.nic->net_devices) names.others += ", " + plain(device.name, 64);
  }

  // Display, network, NVMe and accelerators (PCI Code and ID Assignment Specification, class codes).
  bool is_interesting(std::size_t pci) const {
    const std::uint32_t class_code = topology_.pci[pci].class_code;
    const std::uint32_t base = class_code >> 16U;
    return names_.contains(static_cast<int>(pci)) || base == 0x03 || base == 0x02 || base == 0x12 || (class_code >> 8U) == 0x0108;
  }

  void print_numa_node(int number) {
    const auto found = roots_.extract(number);
    if (number == kUnknownNode && found.empty()) return;
    report_.print("{}\n", number == kUnknownNode ? "NUMA node unknown" : node_text(topology_, number));
    if (found.empty()) return;
    for (const auto& [complex, devices] : found.mapped()) {
      report_.print("  root complex {}\n", complex.empty() ? "unknown" : plain(complex, 64));
      for (const std::size_t device : devices) print_device(device, 2);
    }
  }

  void print_device(std::size_t pci, std::size_t depth) {
    if (depth > kMaxDepth) {
      report_.print("{:{}}...\n", "", 2 * depth);
      return;
    }
    const PciNode& node = topology_.pci[pci];
    const auto& [mark, name, others] = names_[static_cast<int>(pci)];
    const std::string link = link_text(node.link);
    report_.print("{:{}}{}{} {}{}{}{}\n", "", 2 * depth, mark.empty() ? "" : "[" + mark + "] ", node.address.to_string(),
                  node.is_bridge ? "bridge " : "", name.empty() ? device_text(node) : name, link.empty() ? "" : ", " + link,
                  others);
    for (const std::size_t child : children_[pci]) print_device(child, depth + 1);
  }

  Report& report_;
  const Topology& topology_;
  const std::vector<End> ends_ = shown_ends(topology_);
  std::map<int, Names> names_;
  std::vector<std::set<std::size_t>> children_;                        // that are shown
  std::map<int, std::map<std::string, std::set<std::size_t>>> roots_;  // by NUMA node and root complex
  std::size_t hidden_count_ = 0;
};

void print_nvlinks(Report& report, const Topology& topology) {
  for (const NvLinkBond& bond : topology.nvlinks) {
    report.print("GPU{} - GPU{}: {} NVLinks{}{}\n", bond.first, bond.second, bond.count,
                 bond.is_switched ? " through NVSwitches" : "",
                 bond.gb_per_s > 0 ? fmt::format(", {:.1f} GB/s each way", bond.gb_per_s) : "");
  }
}

// --- The drawing ----------------------------------------------------------------------------------------------------------------

constexpr std::size_t kMaxBridges = 2000;  // of all devices together: a drawing of more cannot be read

// A quoted string of DOT. Backslashes begin escapes and '&' begins entities in labels, so both are escaped; "\n" is a new line.
std::string dot_string(std::string_view text) {
  return '"' + replaced(text, {{'"', "\\\""}, {'\\', "\\\\"}, {'&', "&amp;"}, {'\n', "\\n"}}) + '"';
}

// GPUs, NICs and the bridges above them, in one box for each NUMA node.
class Graph {
 public:
  explicit Graph(const Topology& topology) : topology_(topology) {
    for (const End& end : shown_ends(topology)) add_end(end);
  }

  std::string text(const std::string& title) {
    std::string text = "graph machine {\n";
    text += fmt::format("  graph [label={}, labelloc=t, fontname=Helvetica, nodesep=0.3, ranksep=0.6];\n", dot_string(title));
    text += "  node [fontname=Helvetica, fontsize=11, shape=box];\n  edge [fontname=Helvetica, fontsize=9];\n";
    for (const NumaNode& node : topology_.numa_nodes) clusters_[node.index];
    for (auto& [number, body] : clusters_) text += cluster(number, body);
    return text + loose_ + edges_ + nvlinks() + "}\n";
  }

 private:
  const PciNode& node_at(int pci) const { return topology_.pci[static_cast<std::size_t>(pci)]; }

  std::string label_of(const End& end) const {
    std::string label = end.label + "\n";
    if (end.gpu != nullptr) {
      return label + (end.gpu->name.empty() ? "" : plain(end.gpu->name, 80) + "\n") + end.gpu->address.to_string();
    }
    label += plain(end.nic->name, 80);
    const PciNode* const node = element(topology_.pci, end.pci);
    if (node != nullptr) label += "\n" + node->address.to_string();
    if (end.nic->rate_gbit_per_s() > 0) label += fmt::format("\n{:g} Gb/s", end.nic->rate_gbit_per_s());
    return label;
  }

  void add_end(const End& end) {
    const bool is_gpu = end.gpu != nullptr;
    const std::string name = fmt::format("{}{}", is_gpu ? "gpu" : "nic", end.point.index);
    const std::vector<int> way = way_up(topology_, end.pci);
    // The NUMA node of the device or of the nearest bridge above that tells.
    const auto telling = std::ranges::find_if(way, [&](int pci) { return node_at(pci).numa_node >= 0; });
    const int number = telling == way.end() ? -1 : node_at(*telling).numa_node;
    (way.empty() ? loose_ : clusters_[number]) += fmt::format("    {} [label={}, style=filled, fillcolor=\"{}\"];\n", name,
                                                              dot_string(label_of(end)), is_gpu ? "#b7e1a1" : "#a9cdf0");
    join(way, name, number);
  }

  // Edges from a device up to its root complex, and the bridges on the way that are not drawn yet.
  void join(const std::vector<int>& way, std::string below, int number) {
    for (std::size_t i = 0; i < way.size(); ++i) {
      const PciNode& node = node_at(way[i]);
      const bool is_top = i + 1 == way.size();
      const std::string above = is_top ? root_of(node, number) : fmt::format("pci{}", way[i + 1]);
      // A root port and the downstream port of a switch tell of the link below them, and what joins them to the rest is inside of
      // one chip; they stand at every other level of the tree (PCI Express Base Specification, topology).
      const bool tells_below = node.is_bridge && (way.size() - i) % 2 == 1;
      edges_ += fmt::format("  {} -- {} [label={}];\n", above, below, dot_string(tells_below ? "" : link_text(node.link)));
      if (is_top || !bridges_.insert(way[i + 1]).second || bridges_.size() > kMaxBridges) return;
      const PciNode& bridge = node_at(way[i + 1]);
      clusters_[number] += fmt::format("    {} [label={}, style=rounded];\n", above,
                                       dot_string("bridge " + bridge.address.to_string() + "\n" + device_text(bridge)));
      below = above;
    }
  }

  std::string root_of(const PciNode& node, int number) {
    const auto [found, is_new] = roots_.emplace(std::pair(number, node.root_complex), roots_.size());
    const std::string name = fmt::format("root{}", found->second);
    if (is_new) {
      clusters_[number] +=
          fmt::format("    {} [label={}, shape=box3d];\n", name, dot_string("root complex\n" + plain(node.root_complex, 64)));
      edges_ += fmt::format("  {} -- {} [style=dotted];\n", memory_name(number), name);
    }
    return name;
  }

  static std::string memory_name(int number) { return number < 0 ? "memory_unknown" : fmt::format("memory{}", number); }

  std::string cluster(int number, const std::string& body) const {
    const NumaNode* const node = element(topology_.numa_nodes, topology_.find_numa_node(number));
    const std::string memory =
        node == nullptr ? "" : fmt::format("\n{:.1f} GiB of host memory", static_cast<double>(node->memory_bytes) / 1073741824.0);
    std::string text = fmt::format("  subgraph cluster_{} {{\n", memory_name(number));
    text += fmt::format("    label={};\n", dot_string(number < 0 ? "NUMA node unknown" : fmt::format("NUMA node {}", number)));
    text += fmt::format("    {} [label={}, shape=cylinder];\n", memory_name(number),
                        dot_string("CPUs " + cpus_text(topology_, number) + memory));
    return text + body + "  }\n";
  }

  // Through NVSwitches every GPU is joined to every other; one node in the middle says the same with fewer lines.
  std::string nvlinks() const {
    std::string text;
    std::map<int, unsigned> switched;
    for (const NvLinkBond& bond : topology_.nvlinks) {
      if (static_cast<std::size_t>(bond.second) >= kMaxEnds) continue;  // which is not drawn
      if (bond.is_switched) {
        for (const int gpu : {bond.first, bond.second}) switched[gpu] = std::max(switched[gpu], bond.count);
        continue;
      }
      const std::string rate = bond.gb_per_s > 0 ? fmt::format(", {:.0f} GB/s", bond.gb_per_s) : "";
      text += fmt::format("  gpu{} -- gpu{} [style=bold, penwidth=3, color=\"#3a7d1e\", constraint=false, label={}];\n", bond.first,
                          bond.second, dot_string(fmt::format("NV{}{}", bond.count, rate)));
    }
    if (switched.empty()) return text;
    text += "  nvswitch [label=\"NVSwitch\", shape=hexagon, style=filled, fillcolor=\"#d8efcb\"];\n";
    for (const auto& [gpu, count] : switched) {
      text += fmt::format("  gpu{} -- nvswitch [style=bold, penwidth=3, color=\"#3a7d1e\", label={}];\n", gpu,
                          dot_string(fmt::format("NV{}", count)));
    }
    return text;
  }

  const Topology& topology_;
  std::map<int, std::string> clusters_;  // by NUMA node
  std::string loose_;
  std::string edges_;
  std::set<int> bridges_;
  std::map<std::pair<int, std::string>, std::size_t> roots_;
};

}  // namespace

void print_matrix(Report& report, const Topology& topology, bool has_all_routes) {
  if (topology.gpus.empty()) report.print("no NVIDIA GPU\n");
  if (topology.nics.empty()) report.print("no NIC\n");
  if (const std::vector<End> ends = shown_ends(topology); !ends.empty()) {
    const std::vector<NicOrder> orders = nic_orders_to_show(topology);
    const std::set<Relation> used = print_cells(report, topology, ends, orders);
    report.print("\n");
    for (const End& end : ends) report.print("{}: {}\n", end.label, text_of(topology, end));
    print_deals(report, ends, orders);
    print_symbols(report, used);
  }
  print_nodes(report, topology);
  print_pairs(report, topology, has_all_routes);
}

void print_tree(Report& report, const Topology& topology) {
  if (topology.gpus.empty()) report.print("no NVIDIA GPU\n");
  Tree(report, topology).print();
  print_nvlinks(report, topology);
}

std::string drawing(const Topology& topology, const std::string& title) { return Graph(topology).text(title); }

}  // namespace gigabar::tool::topology
