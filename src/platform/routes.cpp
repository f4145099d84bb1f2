// SPDX-License-Identifier: Apache-2.0
// The route between two parts of a machine: how they are related, the PCI nodes between them, and the narrowest link. And which NIC
// each GPU should use: the decision for topology, doctor and the rails of ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/topology.hpp"
#include "platform/pci_link.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::inline v0 {
namespace {

using Kind = Endpoint::Kind;

struct Names {
  std::string_view name, short_name;
};
constexpr std::array<Names, 8> kNames{{{"same_device", "X"},
                                       {"nvlink", "NV"},
                                       {"same_switch", "PIX"},
                                       {"several_switches", "PXB"},
                                       {"same_root", "PHB"},
                                       {"same_node", "NODE"},
                                       {"other_node", "SYS"},
                                       {"unknown", "?"}}};

const Names& names_of(Relation relation) noexcept {
  return kNames[std::min(static_cast<std::size_t>(relation), kNames.size() - 1)];
}

template <class Element>
const Element* element_of(const std::vector<Element>& list, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < list.size() ? &list[static_cast<std::size_t>(index)] : nullptr;
}

// One end, looked up.
struct End {
  Kind kind;
  int index;
  int numa_node;
  int pci;         // -1: none
  const Gpu* gpu;  // null: none
  const Nic* nic;
};

std::optional<End> end_of(const Topology& topology, Endpoint endpoint) {
  const auto [kind, index] = endpoint;
  const Gpu* const gpu = kind == Kind::gpu ? element_of(topology.gpus, index) : nullptr;
  const Nic* const nic = kind == Kind::nic ? element_of(topology.nics, index) : nullptr;
  const NumaNode* const node = kind == Kind::numa_node ? element_of(topology.numa_nodes, index) : nullptr;
  if (gpu != nullptr) return End{kind, index, gpu->numa_node, gpu->pci, gpu, nullptr};
  if (nic != nullptr) return End{kind, index, nic->numa_node, nic->pci, nullptr, nic};
  if (node != nullptr) return End{kind, index, node->index, -1, nullptr, nullptr};
  return {};
}

const PciNode* node_of(const Topology& topology, int index) { return element_of(topology.pci, index); }

// The two chains without what they share.
struct Way {
  std::vector<int> up, down;  // both from the device towards the root
  bool has_common = false;    // a bridge above both
};

Way way_between(const Topology& topology, int first, int second) {
  Way way{way_up(topology, first), way_up(topology, second), false};
  while (!way.up.empty() && !way.down.empty() && way.up.back() == way.down.back()) {
    way.has_common = true;
    way.up.pop_back();
    way.down.pop_back();
  }
  return way;
}

bool are_of_one_device(const PciNode& first, const PciNode& second) {
  return first.address.domain == second.address.domain && first.address.bus == second.address.bus &&
         first.address.device == second.address.device;
}

bool are_below_one_root(const PciNode& first, const PciNode& second) {
  return !first.root_complex.empty() && first.root_complex == second.root_complex;
}

Relation relation_by_node(const End& first, const End& second) {
  if (first.numa_node < 0 || second.numa_node < 0) return Relation::unknown;
  return first.numa_node == second.numa_node ? Relation::same_node : Relation::other_node;
}

// A bridge on each side at most is one switch's two lower ports; a switch above a switch is three on a side.
Relation relation_in_tree(const Topology& topology, const End& first, const End& second, const Way& way) {
  const PciNode* a = node_of(topology, first.pci);
  const PciNode* b = node_of(topology, second.pci);
  if (a == nullptr || b == nullptr) {
    // An adapter of software may be on any network device; its node is not known even where there is only one.
    const bool is_placeless = (first.nic != nullptr && a == nullptr) || (second.nic != nullptr && b == nullptr);
    return is_placeless ? Relation::unknown : relation_by_node(first, second);
  }
  if (first.pci == second.pci || are_of_one_device(*a, *b)) return Relation::same_device;
  if (way.has_common) return std::max(way.up.size(), way.down.size()) <= 2 ? Relation::same_switch : Relation::several_switches;
  if (are_below_one_root(*a, *b)) return Relation::same_root;
  return relation_by_node(first, second);
}

const NvLinkBond* bond_between(const Topology& topology, const End& first, const End& second) {
  if (first.gpu == nullptr || second.gpu == nullptr) return nullptr;
  const int low = std::min(first.index, second.index);
  const int high = std::max(first.index, second.index);
  const auto found = std::find_if(topology.nvlinks.begin(), topology.nvlinks.end(), [low, high](const NvLinkBond& bond) {
    return bond.first == low && bond.second == high && bond.count != 0;
  });
  return found == topology.nvlinks.end() ? nullptr : &*found;
}

// Keeps the narrowest of what is known.
void narrow(Route& route, double gb_per_s, std::string what) {
  if (gb_per_s <= 0 || (route.gb_per_s && *route.gb_per_s <= gb_per_s)) return;
  route.gb_per_s = gb_per_s;
  route.bottleneck = std::move(what);
}

// The lesser of two where both are known, else the known one.
template <class Number>
Number lesser(Number a, Number b) {
  if (a == Number{} || b == Number{}) return std::max(a, b);
  return std::min(a, b);
}

// Which way the link of a bridge leads that its files tell of: root ports and the lower ports of switches look down, the upper port
// of a switch, between two of those, looks up. From the root, the bridges of a chain look down, up, down, ...
bool looks_down(const Topology& topology, const std::vector<int>& chain, std::size_t place) {
  const PciNode* node = node_of(topology, chain[place]);
  return node != nullptr && node->is_bridge && (chain.size() - 1 - place) % 2 == 0;
}

// The links on the way from a device towards the root, `count` nodes of its chain.
void narrow_to_links(const Topology& topology, int device, std::size_t count, Route& route) {
  const std::vector<int> chain = way_up(topology, device);
  for (std::size_t place = 0; place < count && place < chain.size(); ++place) {
    if (looks_down(topology, chain, place)) continue;
    const PciNode& lower = topology.pci[static_cast<std::size_t>(chain[place])];
    const bool has_port = place + 1 < chain.size() && looks_down(topology, chain, place + 1);
    const PciLinkFacts port = has_port ? topology.pci[static_cast<std::size_t>(chain[place + 1])].link : PciLinkFacts{};
    double speed = lesser(lower.link.most_gt_per_s, port.most_gt_per_s);
    if (speed == 0) speed = lesser(lower.link.gt_per_s, port.gt_per_s);
    const auto link = pcie_link_of_speed(speed, lesser(lower.link.width, port.width));
    if (link) narrow(route, link->gb_per_s(), text(link->name(), " at ", lower.address.to_string()));
  }
}

void narrow_to_nic(const Nic& nic, Route& route) {
  const double gbit_per_s = nic.rate_gbit_per_s();
  const auto active =
      std::count_if(nic.ports.begin(), nic.ports.end(), [](const RdmaPort& port) { return port.state == "ACTIVE"; });
  narrow(route, gbit_per_s / 8, text(nic.name, active > 1 ? " ports at " : " port at ", std::llround(gbit_per_s), " Gb/s"));
}

void add_hops(const Topology& topology, const Way& way, Route& route) {
  const auto add = [&](int index) { route.hops.push_back(topology.pci[static_cast<std::size_t>(index)].address); };
  std::for_each(way.up.begin(), way.up.end(), add);
  std::for_each(way.down.rbegin(), way.down.rend(), add);
}

Route nvlink_route(const NvLinkBond& bond) {
  Route route;
  route.relation = Relation::nvlink;
  route.nvlink_count = bond.count;
  narrow(route, bond.gb_per_s, text("NVLink x", bond.count));
  return route;
}

// Memory of a CPU that a GPU is joined to by NVLink-C2C is not reached through PCIe; nobody tells the rate of those links.
bool is_coherent_pair(const End& first, const End& second) {
  const auto is_one = [](const End& gpu, const End& node) {
    return gpu.gpu != nullptr && gpu.gpu->is_coherent && node.kind == Kind::numa_node;
  };
  return is_one(first, second) || is_one(second, first);
}

// A NIC reaches a coherent GPU's memory through the CPU that the GPU is joined to, unless the two share a switch: the PCIe links
// above the GPU are not on the way.
bool is_reached_through_cpu(const End& gpu, const End& nic, const Way& way) {
  return gpu.gpu != nullptr && gpu.gpu->is_coherent && nic.nic != nullptr && !way.has_common;
}

// ---- the NIC of each GPU

// What makes one NIC better for a GPU than another; the lesser one is better.
struct Rank {
  Relation relation = Relation::unknown;
  bool is_down = false;
  bool is_far = false;  // of another package: nodes of one package are nearer to each other
  double minus_gb_per_s = 0;

  auto operator<=>(const Rank&) const = default;
};

struct Candidate {
  Rank rank;
  int nic = 0;

  auto operator<=>(const Candidate&) const = default;
};

// All of whose ports are known to be down.
bool is_down(const Nic& nic) {
  const auto may_be_up = [](const RdmaPort& port) { return port.state == "ACTIVE" || port.state.empty(); };
  return !nic.ports.empty() && std::ranges::none_of(nic.ports, may_be_up);
}

// -1: not known.
int package_of(const Topology& topology, int numa_node) {
  const int index = topology.find_numa_node(numa_node);
  return index < 0 ? -1 : topology.numa_nodes[static_cast<std::size_t>(index)].package;
}

// The best first; equals in the order of the topology.
std::vector<Candidate> candidates_of(const Topology& topology, int gpu, bool only_rdma) {
  const int package = package_of(topology, topology.gpus[static_cast<std::size_t>(gpu)].numa_node);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < topology.nics.size(); ++i) {
    const Nic& nic = topology.nics[i];
    if (only_rdma && nic.rdma_device.empty()) continue;
    const auto index = static_cast<int>(i);
    const Route route = route_between(topology, {Endpoint::Kind::gpu, gpu}, {Endpoint::Kind::nic, index});
    const bool is_far = package < 0 || package_of(topology, nic.numa_node) != package;
    candidates.push_back({{route.relation, is_down(nic), is_far, -route.gb_per_s.value_or(0)}, index});
  }
  std::ranges::sort(candidates);
  return candidates;
}

NicOrder undealt_order(const Topology& topology, int gpu, bool only_rdma) {
  NicOrder order;
  const std::vector<Candidate> candidates = candidates_of(topology, gpu, only_rdma);
  for (const Candidate& candidate : candidates) {
    order.nics.push_back(candidate.nic);
    if (candidate.rank == candidates.front().rank) ++order.equal_count;
  }
  return order;
}

std::string reason_of(const NicOrder& order) {
  if (order.nics.empty()) return "there is no NIC";
  if (order.equal_count == 1) return "the nearest";
  return text("one of ", order.equal_count, " equally near NICs, dealt by order of the GPUs");
}

// The GPUs of one group in the order of the deal.
std::vector<std::size_t> by_address(const Topology& topology, std::vector<std::size_t> gpus) {
  const auto place = [&](std::size_t gpu) { return std::tuple(topology_parts::key_of(topology.gpus[gpu].address), gpu); };
  std::ranges::sort(gpus, {}, place);
  return gpus;
}

// `turn` rounds were dealt before. Where a round ends with the last NIC, the next one begins with the second, so that ranks that
// share a GPU do not share its NIC.
std::size_t first_of(std::size_t position, std::size_t gpu_count, std::size_t nic_count, std::size_t turn) {
  const std::size_t step = gpu_count % nic_count == 0 ? gpu_count + 1 : gpu_count;
  return (position + turn % nic_count * step) % nic_count;
}

}  // namespace

std::string_view name_of(Relation relation) noexcept { return names_of(relation).name; }

std::string short_name(Relation relation, unsigned nvlink_count) try {
  const std::string_view name = names_of(relation).short_name;
  return relation == Relation::nvlink && nvlink_count != 0 ? text(name, nvlink_count) : std::string(name);
} catch (...) {
  return {};
}

Route route_between(const Topology& topology, Endpoint first, Endpoint second) try {
  const Uncancelled uncancelled;
  const auto from = end_of(topology, first);
  const auto to = end_of(topology, second);
  Route route;
  if (!from || !to) return route;
  if (from->kind == to->kind && from->index == to->index) {
    route.relation = Relation::same_device;
    return route;
  }
  if (const NvLinkBond* bond = bond_between(topology, *from, *to)) return nvlink_route(*bond);
  Way way = way_between(topology, from->pci, to->pci);
  route.relation = relation_in_tree(topology, *from, *to, way);
  if (route.relation == Relation::same_device || is_coherent_pair(*from, *to)) return route;
  if (is_reached_through_cpu(*from, *to, way)) way.up.clear();
  if (is_reached_through_cpu(*to, *from, way)) way.down.clear();
  add_hops(topology, way, route);
  narrow_to_links(topology, from->pci, way.up.size(), route);
  narrow_to_links(topology, to->pci, way.down.size(), route);
  for (const End* end : {&*from, &*to}) {
    if (end->nic != nullptr) narrow_to_nic(*end->nic, route);
  }
  return route;
} catch (...) {
  return {};
}

std::vector<NicOrder> nic_orders(const Topology& topology, bool only_rdma, std::size_t turn) try {
  const Uncancelled uncancelled;
  std::vector<NicOrder> orders;
  std::map<std::vector<int>, std::vector<std::size_t>> groups;  // the GPUs that have these NICs first
  for (std::size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    NicOrder order = undealt_order(topology, static_cast<int>(gpu), only_rdma);
    order.reason = reason_of(order);
    const auto equals_end = order.nics.begin() + static_cast<std::ptrdiff_t>(order.equal_count);
    if (order.equal_count > 1) groups[{order.nics.begin(), equals_end}].push_back(gpu);
    orders.push_back(std::move(order));
  }
  for (const auto& [nics, members] : groups) {
    const std::vector<std::size_t> gpus = by_address(topology, members);
    for (std::size_t position = 0; position < gpus.size(); ++position) {
      const auto begin = orders[gpus[position]].nics.begin();
      const std::size_t first = first_of(position, gpus.size(), nics.size(), turn);
      std::rotate(begin, begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(nics.size()));
    }
  }
  return orders;
} catch (...) {
  return {};
}

std::vector<int> nearest_nics(const Topology& topology, int gpu, bool only_rdma) try {
  const Uncancelled uncancelled;
  if (gpu < 0 || static_cast<std::size_t>(gpu) >= topology.gpus.size()) return {};
  std::vector<NicOrder> orders = nic_orders(topology, only_rdma);
  if (orders.empty()) return {};  // there was no memory for them
  return std::move(orders[static_cast<std::size_t>(gpu)].nics);
} catch (...) {
  return {};
}

}  // namespace gigabar::inline v0
