// SPDX-License-Identifier: Apache-2.0
// Which NIC each GPU should use: nic_orders and nearest_nics of gigabar/topology.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/errors.hpp"
#include "unit/platform/tree.hpp"

namespace gigabar {
namespace {

using namespace test::tree;

TEST(NearestNics, ByRelationThenRateThenPlaceInTheTopology) {
  Tree tree;
  tree.add_nodes(2);
  const int upper = tree.bridge("01:00.0", tree.add("00:01.0", -1, "pci0000:00", 0, true));
  tree.add_gpu(tree.device("03:00.0", tree.bridge("02:00.0", upper)));
  tree.add_nic("far", tree.device("81:00.0", tree.add("80:01.0", -1, "pci0000:80", 1, true)), 400);
  tree.add_nic("rxe0", -1, 100);
  tree.add_nic("phb", tree.device("06:00.0", tree.add("00:02.0", -1, "pci0000:00", 0, true)), 400);
  tree.add_nic("pix_slow", tree.device("04:00.0", tree.bridge("02:01.0", upper)), 100);
  tree.add_nic("pix_b", tree.device("05:00.0", tree.bridge("02:02.0", upper)), 200);
  tree.add_nic("pix_a", tree.device("07:00.0", tree.bridge("02:03.0", upper)), 200);
  tree.add_nic("pix_down", tree.device("08:00.0", tree.bridge("02:04.0", upper)), 400, "DOWN");
  tree.add_nic("no_rdma", tree.device("09:00.0", tree.bridge("02:05.0", upper)), 300);
  tree.topology.nics.back().rdma_device.clear();
  const auto names = [&](bool only_rdma) {
    std::vector<std::string> found;
    for (const int index : nearest_nics(tree.topology, 0, only_rdma))
      found.push_back(tree.topology.nics.at(static_cast<std::size_t>(index)).name);
    return found;
  };
  EXPECT_EQ(names(true), (std::vector<std::string>{"pix_b", "pix_a", "pix_slow", "pix_down", "phb", "far", "rxe0"}));
  EXPECT_EQ(names(false).front(), "no_rdma");
  EXPECT_EQ(names(false).size(), 8u);
}

// Switches below one socket, each at a root port of its own; buses count up from 1.
struct Machine : Tree {
  Machine() { add_nodes(1); }

  void add_switch(int gpu_count, int nic_count) {
    const int upper = bridge(next().c_str(), add(next().c_str(), -1, "pci0000:00", 0, true));
    for (int i = 0; i < gpu_count; ++i) add_gpu(below(upper));
    for (int i = 0; i < nic_count; ++i) add_nic(text("mlx5_", topology.nics.size()).c_str(), below(upper), 200);
    for (Gpu& gpu : topology.gpus) gpu.address = topology.pci.at(static_cast<std::size_t>(gpu.pci)).address;
  }
  // The first NIC of each GPU.
  std::vector<int> firsts(std::size_t turn = 0) const {
    std::vector<int> nics;
    for (const NicOrder& order : nic_orders(topology, true, turn)) nics.push_back(order.nics.at(0));
    return nics;
  }

 private:
  std::string next() {
    ++bus_;
    return text(bus_ < 16 ? "0" : "", to_hex(bus_), ":00.0");
  }
  static std::string to_hex(unsigned number) {
    constexpr const char* kDigits = "0123456789abcdef";
    return number < 16 ? std::string(1, kDigits[number]) : to_hex(number / 16) + kDigits[number % 16];
  }
  int below(int upper) {
    const int port = bridge(next().c_str(), upper);
    return device(next().c_str(), port);
  }
  unsigned bus_ = 0;
};

using Indexes = std::vector<int>;

TEST(NicOrders, TwoSwitchesWithTwoGpusAndTwoNicsEach) {
  Machine machine;
  machine.add_switch(2, 2);
  machine.add_switch(2, 2);
  EXPECT_EQ(machine.firsts(), (Indexes{0, 1, 2, 3}));
  const std::vector<NicOrder> orders = nic_orders(machine.topology);
  EXPECT_EQ(orders[1].nics, (Indexes{1, 0, 2, 3})) << "what was dealt to the others comes next";
  for (std::size_t gpu = 0; gpu < orders.size(); ++gpu) {
    EXPECT_EQ(orders[gpu].equal_count, 2u);
    EXPECT_EQ(orders[gpu].reason, "one of 2 equally near NICs, dealt by order of the GPUs");
    EXPECT_EQ(nearest_nics(machine.topology, static_cast<int>(gpu)), orders[gpu].nics) << "there is one decision";
  }
}

TEST(NicOrders, FewerNicsThanGpusTakeTurns) {
  Machine one;
  one.add_switch(2, 1);
  EXPECT_EQ(one.firsts(), (Indexes{0, 0}));
  EXPECT_EQ(nic_orders(one.topology)[1].reason, "the nearest");
  Machine four;
  four.add_switch(8, 4);
  EXPECT_EQ(four.firsts(), (Indexes{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(nic_orders(four.topology)[5].nics, (Indexes{1, 2, 3, 0}));
}

TEST(NicOrders, MoreNicsThanGpus) {
  Machine machine;
  machine.add_switch(2, 3);
  EXPECT_EQ(machine.firsts(), (Indexes{0, 1}));
  EXPECT_EQ(nic_orders(machine.topology)[1].reason, "one of 3 equally near NICs, dealt by order of the GPUs");
}

TEST(NicOrders, RanksThatShareAGpuGoOnWithTheDeal) {
  Machine three;
  three.add_switch(2, 3);
  EXPECT_EQ(three.firsts(1), (Indexes{2, 0}));
  EXPECT_EQ(three.firsts(2), (Indexes{1, 2}));
  Machine alone;
  alone.add_switch(1, 2);
  EXPECT_EQ(alone.firsts(0), (Indexes{0}));
  EXPECT_EQ(alone.firsts(1), (Indexes{1}));
  EXPECT_EQ(alone.firsts(2), (Indexes{0}));
  // Every round uses each NIC as often as any other, and no two ranks of a GPU meet while another NIC is left.
  for (const auto& [gpus, nics] : {std::pair{2, 2}, std::pair{4, 2}, std::pair{8, 4}, std::pair{4, 4}}) {
    Machine machine;
    machine.add_switch(gpus, nics);
    for (std::size_t turn = 0; turn < 5; ++turn) {
      std::map<int, int> uses;
      for (const int nic : machine.firsts(turn)) ++uses[nic];
      EXPECT_EQ(uses.size(), static_cast<std::size_t>(nics));
      for (const auto& [nic, count] : uses) EXPECT_EQ(count, gpus / nics) << "NIC " << nic << " in turn " << turn;
    }
    EXPECT_NE(machine.firsts(0)[0], machine.firsts(1)[0]) << gpus << " GPUs, " << nics << " NICs";
  }
  EXPECT_EQ(three.firsts(SIZE_MAX).size(), 2u);
}

// CUDA may count GPUs in another order than the bus, and a process may see some of them only.
TEST(NicOrders, TheDealFollowsTheBusAndNotTheOrderOfTheGpus) {
  Machine machine;
  machine.add_switch(2, 2);
  std::swap(machine.topology.gpus[0], machine.topology.gpus[1]);
  EXPECT_EQ(machine.firsts(), (Indexes{1, 0}));
}

TEST(NicOrders, OnlyNicsThatAreEqualInAllAreDealt) {
  Machine machine;
  machine.add_switch(2, 3);
  machine.topology.nics[0].ports[0].state = "DOWN";
  EXPECT_EQ(machine.firsts(), (Indexes{1, 2})) << "a port that is down is not dealt";
  machine.topology.nics[2].ports[0].rate_gbit_per_s = 100;
  EXPECT_EQ(machine.firsts(), (Indexes{1, 1})) << "nor a slower one";
  EXPECT_EQ(nic_orders(machine.topology)[0].reason, "the nearest");
  machine.topology.nics.clear();
  EXPECT_TRUE(nic_orders(machine.topology)[0].nics.empty());
  EXPECT_EQ(nic_orders(machine.topology)[0].equal_count, 0u);
  EXPECT_EQ(nic_orders(machine.topology)[0].reason, "there is no NIC");
  EXPECT_TRUE(nic_orders({}).empty());
}

}  // namespace
}  // namespace gigabar
