// SPDX-License-Identifier: Apache-2.0
// Prints the NIC that each GPU should use, and the route to it. Without an argument it looks at this machine, else at a captured
// one: gigabar topology --capture box.tar; ./nearest_nic box.tar
#include <cstdio>
#include <gigabar/topology.hpp>

int main(int count, char** words) {
  gigabar::Machine machine = gigabar::Machine::here();
  if (count > 1) {
    auto captured = gigabar::Machine::open(words[1]);
    if (!captured) return std::puts(captured.message().c_str()), 1;
    machine = *captured;
  }
  const auto topology = gigabar::discover_topology(machine);
  if (!topology) return std::puts(topology.message().c_str()), 1;

  std::printf("%s: %zu GPUs, %zu NICs, %zu NUMA nodes\n", machine.origin().c_str(), topology->gpus.size(), topology->nics.size(),
              topology->numa_nodes.size());
  const auto orders = gigabar::nic_orders(*topology);
  for (std::size_t gpu = 0; gpu < orders.size(); ++gpu) {
    if (orders[gpu].nics.empty()) {
      std::printf("GPU %zu: no RDMA adapter\n", gpu);
      continue;
    }
    const int nic = orders[gpu].nics.front();
    const gigabar::Route route = gigabar::route_between(*topology, {gigabar::Endpoint::Kind::gpu, static_cast<int>(gpu)},
                                                        {gigabar::Endpoint::Kind::nic, nic});
    std::printf("GPU %zu: %s, %s; %s, %s\n", gpu, topology->nics[static_cast<std::size_t>(nic)].name.c_str(),
                orders[gpu].reason.c_str(), gigabar::short_name(route.relation, route.nvlink_count).c_str(),
                route.bottleneck.empty() ? "rate unknown" : route.bottleneck.c_str());
  }
}
