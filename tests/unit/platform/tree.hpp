// SPDX-License-Identifier: Apache-2.0
// Topologies put together by hand, for the tests of routes and of the NICs that GPUs should use.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gigabar/topology.hpp"

namespace gigabar::test::tree {

using Kind = Endpoint::Kind;

inline Endpoint gpu(int index) { return {Kind::gpu, index}; }
inline Endpoint nic(int index) { return {Kind::nic, index}; }
inline Endpoint node(int index) { return {Kind::numa_node, index}; }

inline constexpr PciLinkFacts kGen5x16{32, 16, 32, 16};

// A tree that grows; each function gives the index of what it added.
struct Tree {
  Topology topology;

  int add(const char* address, int parent, const char* root, int numa_node, bool is_bridge, PciLinkFacts link = kGen5x16) {
    PciNode added;
    added.address = *PciAddress::parse(address);
    added.parent = parent;
    added.root_complex = root;
    added.numa_node = numa_node;
    added.is_bridge = is_bridge;
    added.link = link;
    topology.pci.push_back(added);
    return static_cast<int>(topology.pci.size()) - 1;
  }
  // Below the bridge `parent`, of the same root complex and node.
  int bridge(const char* address, int parent, PciLinkFacts link = kGen5x16) {
    const PciNode& above = topology.pci.at(static_cast<std::size_t>(parent));
    return add(address, parent, std::string(above.root_complex).c_str(), above.numa_node, true, link);
  }
  int device(const char* address, int parent, PciLinkFacts link = kGen5x16) {
    const PciNode& above = topology.pci.at(static_cast<std::size_t>(parent));
    return add(address, parent, std::string(above.root_complex).c_str(), above.numa_node, false, link);
  }
  Endpoint add_gpu(int pci) {
    Gpu added;
    added.pci = pci;
    if (pci >= 0) added.numa_node = topology.pci.at(static_cast<std::size_t>(pci)).numa_node;
    topology.gpus.push_back(added);
    return gpu(static_cast<int>(topology.gpus.size()) - 1);
  }
  Endpoint add_nic(const char* name, int pci, double gbit_per_s = 0, const char* state = "ACTIVE") {
    Nic added;
    added.name = added.rdma_device = name;
    added.pci = pci;
    if (pci >= 0) added.numa_node = topology.pci.at(static_cast<std::size_t>(pci)).numa_node;
    RdmaPort port;
    port.state = state;
    port.rate_gbit_per_s = gbit_per_s;
    added.ports = {port};
    topology.nics.push_back(added);
    return nic(static_cast<int>(topology.nics.size()) - 1);
  }
  void add_nodes(int count) {
    for (int i = 0; i < count; ++i) topology.numa_nodes.push_back({i, i, {2 * i, 2 * i + 1}, 1024});
  }
  Route route(Endpoint first, Endpoint second) const { return route_between(topology, first, second); }
  Relation relation(Endpoint first, Endpoint second) const {
    const Relation there = route(first, second).relation;
    EXPECT_EQ(there, route(second, first).relation) << "a relation is the same from both ends";
    return there;
  }
};

}  // namespace gigabar::test::tree
