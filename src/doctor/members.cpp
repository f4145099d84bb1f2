// SPDX-License-Identifier: Apache-2.0
#include "doctor/members.hpp"

#include <algorithm>
#include <set>

namespace gigabar::inline v0 {

std::vector<Endpoint> ends_of(const Topology& topology) {
  std::vector<Endpoint> all;
  for (int i = 0; i < std::ssize(topology.gpus); ++i) all.push_back({Endpoint::Kind::gpu, i});
  for (int i = 0; i < std::ssize(topology.nics); ++i) all.push_back({Endpoint::Kind::nic, i});
  all.resize(std::min(all.size(), kMaxEnds));
  return all;
}

std::vector<RoutedPair> routed_pairs(const Topology& topology) {
  std::vector<RoutedPair> pairs;
  const auto add = [&](Endpoint first, Endpoint second) {
    pairs.push_back({first, second, route_between(topology, first, second)});
  };
  const std::vector<Endpoint> ends = ends_of(topology);
  for (auto first = ends.begin(); first != ends.end(); ++first) {
    for (auto second = first + 1; second != ends.end(); ++second) add(*first, *second);
  }
  for (const Endpoint& end : ends) {
    if (end.kind != Endpoint::Kind::gpu) continue;
    const int node = topology.find_numa_node(topology.gpus[static_cast<std::size_t>(end.index)].numa_node);
    if (node >= 0) add(end, {Endpoint::Kind::numa_node, node});
  }
  return pairs;
}

std::vector<NicOrder> nic_orders_to_show(const Topology& topology) {
  return nic_orders(topology, std::ranges::any_of(topology.nics, [](const Nic& nic) { return !nic.rdma_device.empty(); }));
}

std::size_t check_count(const Examination& examination) {
  std::set<std::string_view> ids;
  for (const Finding& finding : examination.findings) ids.insert(finding.check);
  return ids.size();
}

}  // namespace gigabar::inline v0
