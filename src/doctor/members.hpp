// SPDX-License-Identifier: Apache-2.0
// Topologies and findings member by member, by the names and in the order of docs/schema: written once for every form
// of JSON.
//
//   members_of(one, put) calls put(name, value) for each member of `one`. A value is a truth, a number, a text, a list of values,
//   an optional one (null where there is nothing), or an object, which has a members_of() too.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gigabar/doctor.hpp"
#include "gigabar/topology.hpp"

namespace gigabar::inline v0 {

// An object without a type of its own: each(put) puts its members.
template <class Each>
struct Members {
  Each each;
};
template <class Each>
Members(Each) -> Members<Each>;

template <class Each>
void members_of(const Members<Each>& members, const auto& put) {
  members.each(put);
}

// ---- what a machine is made of

template <class Number>
std::optional<Number> if_positive(Number number) {
  return number > 0 ? std::optional(number) : std::nullopt;
}
inline std::optional<int> if_index(int index) { return index >= 0 ? std::optional(index) : std::nullopt; }
inline std::optional<std::string_view> if_told(std::string_view text) { return text.empty() ? std::nullopt : std::optional(text); }

void members_of(const PciLinkFacts& link, const auto& put) {
  put("gt_per_s", if_positive(link.gt_per_s));
  put("width", if_positive(link.width));
  put("most_gt_per_s", if_positive(link.most_gt_per_s));
  put("most_width", if_positive(link.most_width));
}

void members_of(const PciNode& node, const auto& put) {
  put("address", node.address.to_string());
  put("vendor", node.vendor);
  put("device", node.device);
  put("class_code", node.class_code);
  put("name", if_told(node.name));
  put("is_bridge", node.is_bridge);
  put("parent", if_index(node.parent));
  put("root_complex", if_told(node.root_complex));
  put("numa_node", if_index(node.numa_node));
  put("link", node.link);
  put("driver", if_told(node.driver));
}

void members_of(const NumaNode& node, const auto& put) {
  put("index", node.index);
  put("package", if_index(node.package));
  put("cpus", node.cpus);
  put("memory_bytes", node.memory_bytes);
}

void members_of(const Gpu& gpu, const auto& put) {
  put("pci", if_index(gpu.pci));
  put("address", gpu.address.to_string());
  put("cuda_index", gpu.cuda_index);
  put("name", if_told(gpu.name));
  put("uuid", if_told(gpu.uuid));
  put("numa_node", if_index(gpu.numa_node));
  put("is_coherent", gpu.is_coherent);
  put("nvlinks_active", gpu.nvlinks_active);
  put("nvlinks_total", gpu.nvlinks_total);
}

void members_of(const GidEntry& entry, const auto& put) {
  put("index", entry.index);
  put("gid", entry.gid);
  put("type", if_told(entry.type));
  put("netdev", if_told(entry.netdev));
}

void members_of(const RdmaPort& port, const auto& put) {
  put("number", port.number);
  put("state", if_told(port.state));
  put("link_layer", if_told(port.link_layer));
  put("rate_gbit_per_s", if_positive(port.rate_gbit_per_s));
  put("active_mtu_bytes", port.active_mtu);
  put("gids", port.gids);
}

void members_of(const NetDevice& device, const auto& put) {
  put("name", device.name);
  put("state", if_told(device.state));
  put("mtu_bytes", device.mtu);
  put("gbit_per_s", device.gbit_per_s);
}

void members_of(const Nic& nic, const auto& put) {
  put("pci", if_index(nic.pci));
  put("name", nic.name);
  put("rdma_device", if_told(nic.rdma_device));
  put("driver", if_told(nic.driver));
  put("numa_node", if_index(nic.numa_node));
  put("rate_gbit_per_s", if_positive(nic.rate_gbit_per_s()));
  put("ports", nic.ports);
  put("net_devices", nic.net_devices);
}

void members_of(const NvLinkBond& bond, const auto& put) {
  put("first", bond.first);
  put("second", bond.second);
  put("count", bond.count);
  put("gb_per_s", if_positive(bond.gb_per_s));
  put("is_switched", bond.is_switched);
}

// ---- what lies between its parts

// GPUs, then NICs. More than any machine has are left out: a hostile archive cannot ask for routes between millions.
inline constexpr std::size_t kMaxEnds = 160;
std::vector<Endpoint> ends_of(const Topology& topology);

// Two ends, or a GPU and the memory of its own NUMA node.
struct RoutedPair {
  Endpoint first, second;
  Route route;
};
// Each two different ends once, then each GPU with the memory of its node.
std::vector<RoutedPair> routed_pairs(const Topology& topology);

// For each GPU the NICs in the order in which it should use them: those with RDMA, unless no NIC has it.
std::vector<NicOrder> nic_orders_to_show(const Topology& topology);

void members_of(const Endpoint& end, const auto& put) {
  constexpr std::string_view kKinds[] = {"gpu", "nic", "numa_node"};
  put("kind", kKinds[static_cast<std::size_t>(end.kind)]);
  put("index", end.index);
}

void members_of(const RoutedPair& pair, const auto& put) {
  put("first", pair.first);
  put("second", pair.second);
  put("relation", name_of(pair.route.relation));
  put("symbol", short_name(pair.route.relation, pair.route.nvlink_count));
  put("nvlink_count", pair.route.nvlink_count);
  put("gb_per_s", pair.route.gb_per_s);
  put("bottleneck", if_told(pair.route.bottleneck));
  put("hops", std::views::transform(pair.route.hops, &PciAddress::to_string));
}

// The NICs of one GPU.
struct NearestNics {
  int gpu = 0;
  NicOrder order;
};
void members_of(const NearestNics& nearest, const auto& put) {
  put("gpu", nearest.gpu);
  put("nics", nearest.order.nics);
  put("reason", nearest.order.reason);
}

void members_of(const Topology& topology, const auto& put) {
  std::vector<NearestNics> nearest;
  for (NicOrder& order : nic_orders_to_show(topology)) {
    nearest.push_back({static_cast<int>(nearest.size()), std::move(order)});
  }
  put("what", "topology");
  put("numa_nodes", topology.numa_nodes);
  put("pci", topology.pci);
  put("gpus", topology.gpus);
  put("nics", topology.nics);
  put("nvlinks", topology.nvlinks);
  put("routes", routed_pairs(topology));
  put("nearest_nics", nearest);
  put("could_not_be_found_out", topology.notes);
}

// ---- what an examination found

// The gravest first.
inline constexpr std::array<Verdict, 5> kByGravity{Verdict::fail, Verdict::warn, Verdict::unknown, Verdict::pass, Verdict::skip};

// How many checks have said something.
std::size_t check_count(const Examination& examination);

inline auto summary_of(const Examination& examination) {
  return Members{[&examination](const auto& put) {
    put("checks", check_count(examination));
    put("findings", examination.findings.size());
    for (const Verdict verdict : kByGravity) put(name_of(verdict), examination.count(verdict));
  }};
}

void members_of(const Reading& reading, const auto& put) {
  put("source", reading.source);
  put("value", reading.value);
}

void members_of(const Finding& finding, const auto& put) {
  const CheckInfo* const check = find_check(finding.check);
  const auto about = [check](std::string_view CheckInfo::* text) {
    return check == nullptr ? std::nullopt : std::optional(check->*text);
  };
  put("check", finding.check);
  put("title", about(&CheckInfo::title));
  put("subject", finding.subject);
  put("verdict", name_of(finding.verdict));
  put("statement", finding.statement);
  put("readings", finding.readings);
  put("why", about(&CheckInfo::why));
  put("remedy", finding.remedy);
  put("needs_reboot", finding.needs_reboot);
}

}  // namespace gigabar::inline v0
