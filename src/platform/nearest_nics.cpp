// SPDX-License-Identifier: Apache-2.0
// Which NIC each GPU should use. The decision for topology, doctor and the rails of ranks.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/topology.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::inline v0 {
namespace {

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
