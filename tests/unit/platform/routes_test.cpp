// SPDX-License-Identifier: Apache-2.0
// Routes over trees put together by hand: route_between and nearest_nics of gigabar/topology.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "unit/platform/tree.hpp"

namespace gigabar {
namespace {

using namespace test::tree;

constexpr double kGen5x16Rate = 32.0 * 16 * 128 / 130 / 8;
constexpr double kGen4x8Rate = 16.0 * 8 * 128 / 130 / 8;

std::string hops(const Route& route) {
  std::string line;
  for (const PciAddress& hop : route.hops) line += (line.empty() ? "" : " ") + hop.to_string().substr(5);
  return line;
}

// One switch, and a switch below it:
//   00:01.0 - 01:00.0 + 02:00.0 - 03:00.0 GPU 0
//                     + 02:01.0 - 04:00.0 mlx5_0 (04:00.1 mlx5_1)
//                     + 02:02.0 - 05:00.0 + 06:00.0 - 07:00.0 GPU 1
//   00:02.0 - 08:00.0 GPU 2
struct Switches : Tree {
  Switches() {
    add_nodes(2);
    const int port = add("00:01.0", -1, "pci0000:00", 0, true);
    const int upper = bridge("01:00.0", port);
    const int lower0 = bridge("02:00.0", upper), lower1 = bridge("02:01.0", upper), lower2 = bridge("02:02.0", upper);
    add_gpu(device("03:00.0", lower0));
    add_nic("mlx5_0", device("04:00.0", lower1));
    add_nic("mlx5_1", device("04:00.1", lower1));
    const int second_upper = bridge("05:00.0", lower2);
    add_gpu(device("07:00.0", bridge("06:00.0", second_upper)));
    add_gpu(device("08:00.0", add("00:02.0", -1, "pci0000:00", 0, true)));
  }
};

TEST(Relations, Names) {
  const struct {
    Relation relation;
    const char *name, *short_name;
  } cases[] = {{Relation::same_device, "same_device", "X"},   {Relation::nvlink, "nvlink", "NV"},
               {Relation::same_switch, "same_switch", "PIX"}, {Relation::several_switches, "several_switches", "PXB"},
               {Relation::same_root, "same_root", "PHB"},     {Relation::same_node, "same_node", "NODE"},
               {Relation::other_node, "other_node", "SYS"},   {Relation::unknown, "unknown", "?"}};
  for (const auto& its : cases) {
    EXPECT_EQ(name_of(its.relation), its.name);
    EXPECT_EQ(short_name(its.relation), its.short_name);
  }
  EXPECT_EQ(short_name(Relation::nvlink, 18), "NV18");
  EXPECT_EQ(short_name(Relation::same_switch, 18), "PIX");
}

TEST(Routes, BelowOneSwitch) {
  const Switches tree;
  EXPECT_EQ(tree.relation(gpu(0), nic(0)), Relation::same_switch);
  const Route route = tree.route(gpu(0), nic(0));
  EXPECT_EQ(hops(route), "03:00.0 02:00.0 02:01.0 04:00.0");
  EXPECT_EQ(hops(tree.route(nic(0), gpu(0))), "04:00.0 02:01.0 02:00.0 03:00.0");
  ASSERT_TRUE(route.gb_per_s);
  EXPECT_DOUBLE_EQ(*route.gb_per_s, kGen5x16Rate);
  EXPECT_EQ(route.bottleneck, "PCIe 5.0 x16 at 0000:03:00.0");
}

TEST(Routes, SeveralSwitches) {
  const Switches tree;
  EXPECT_EQ(tree.relation(gpu(1), nic(0)), Relation::several_switches);
  EXPECT_EQ(hops(tree.route(gpu(1), nic(0))), "07:00.0 06:00.0 05:00.0 02:02.0 02:01.0 04:00.0");
}

TEST(Routes, AcrossOneHostBridge) {
  const Switches tree;
  EXPECT_EQ(tree.relation(gpu(2), nic(0)), Relation::same_root);
  EXPECT_EQ(hops(tree.route(gpu(2), nic(0))), "08:00.0 00:02.0 00:01.0 01:00.0 02:01.0 04:00.0");
}

TEST(Routes, OneDevice) {
  const Switches tree;
  EXPECT_EQ(tree.relation(nic(0), nic(1)), Relation::same_device) << "functions of one device";
  EXPECT_EQ(tree.relation(gpu(0), gpu(0)), Relation::same_device);
  EXPECT_TRUE(tree.route(nic(0), nic(1)).hops.empty());
  EXPECT_FALSE(tree.route(gpu(0), gpu(0)).gb_per_s);
}

TEST(Routes, OnOneBridgeWithoutASwitch) {
  Tree tree;
  const int bridge = tree.add("00:01.0", -1, "pci0000:00", 0, true);
  tree.add_gpu(tree.device("01:00.0", bridge));
  tree.add_gpu(tree.device("01:01.0", bridge));
  EXPECT_EQ(tree.relation(gpu(0), gpu(1)), Relation::same_switch);
}

TEST(Routes, BetweenRootComplexes) {
  Tree tree;
  tree.add_nodes(2);
  tree.add_gpu(tree.device("01:00.0", tree.add("00:01.0", -1, "pci0000:00", 0, true)));
  tree.add_gpu(tree.device("41:00.0", tree.add("40:01.0", -1, "pci0000:40", 0, true)));
  tree.add_gpu(tree.device("81:00.0", tree.add("80:01.0", -1, "pci0000:80", 1, true)));
  tree.add_gpu(tree.device("c1:00.0", tree.add("c0:01.0", -1, "pci0000:c0", -1, true)));
  EXPECT_EQ(tree.relation(gpu(0), gpu(1)), Relation::same_node);
  EXPECT_EQ(tree.relation(gpu(0), gpu(2)), Relation::other_node);
  EXPECT_EQ(tree.relation(gpu(0), gpu(3)), Relation::unknown);
  EXPECT_EQ(hops(tree.route(gpu(0), gpu(2))), "01:00.0 00:01.0 80:01.0 81:00.0");
}

TEST(Routes, ToNumaNodes) {
  Tree tree;
  tree.add_nodes(2);
  tree.add_gpu(tree.device("01:00.0", tree.add("00:01.0", -1, "pci0000:00", 1, true), {16, 8, 16, 16}));
  tree.add_gpu(tree.device("41:00.0", tree.add("40:01.0", -1, "pci0000:40", -1, true)));
  EXPECT_EQ(tree.relation(gpu(0), node(1)), Relation::same_node);
  EXPECT_EQ(tree.relation(gpu(0), node(0)), Relation::other_node);
  EXPECT_EQ(tree.relation(gpu(1), node(0)), Relation::unknown);
  EXPECT_EQ(tree.relation(node(0), node(1)), Relation::other_node);
  EXPECT_EQ(tree.relation(node(0), node(0)), Relation::same_device);
  const Route route = tree.route(node(1), gpu(0));
  EXPECT_EQ(hops(route), "00:01.0 01:00.0");
  EXPECT_DOUBLE_EQ(route.gb_per_s.value_or(0), kGen4x8Rate);
  EXPECT_FALSE(tree.route(node(0), node(1)).gb_per_s);
}

// Its memory is reached through NVLink-C2C, whose rate nobody tells: PCIe's would be wrong.
TEST(Routes, ACoherentGpuToItsNode) {
  Tree tree;
  tree.add_nodes(2);
  tree.add_gpu(tree.device("01:00.0", tree.add("00:01.0", -1, "pci0000:00", 0, true)));
  tree.topology.gpus[0].is_coherent = true;
  const Route route = tree.route(gpu(0), node(0));
  EXPECT_EQ(route.relation, Relation::same_node);
  EXPECT_FALSE(route.gb_per_s);
  EXPECT_TRUE(route.hops.empty() && route.bottleneck.empty());
}

// Its own PCIe link, narrow as it may be, is on the way to an adapter below the same switch only.
TEST(Routes, ACoherentGpuToANic) {
  Tree tree;
  tree.add_nodes(1);
  const PciLinkFacts one_lane{32, 1, 32, 1};
  tree.add_gpu(tree.device("01:00.0", tree.add("00:00.0", -1, "pci0009:00", 0, true, one_lane), one_lane));
  tree.topology.gpus[0].is_coherent = true;
  tree.add_nic("mlx5_0", tree.device("03:00.0", tree.add("02:00.0", -1, "pci0000:02", 0, true)));
  for (const Route& route : {tree.route(gpu(0), nic(0)), tree.route(nic(0), gpu(0))}) {
    EXPECT_EQ(route.relation, Relation::same_node);
    EXPECT_DOUBLE_EQ(route.gb_per_s.value_or(0), kGen5x16Rate);
    EXPECT_EQ(route.bottleneck, "PCIe 5.0 x16 at 0000:03:00.0");
    EXPECT_EQ(route.hops.size(), 2u);
  }
  const int upper = tree.bridge("05:00.0", tree.add("04:00.0", -1, "pci0000:04", 0, true));
  tree.add_gpu(tree.device("08:00.0", tree.bridge("06:00.0", upper), one_lane));
  tree.topology.gpus[1].is_coherent = true;
  tree.add_nic("mlx5_1", tree.device("09:00.0", tree.bridge("07:00.0", upper)));
  EXPECT_EQ(tree.route(gpu(1), nic(1)).bottleneck, "PCIe 5.0 x1 at 0000:08:00.0");
}

TEST(Routes, NvLinkBeforePcie) {
  Switches tree;
  tree.topology.nvlinks = {{0, 1, 18, 478.1, true}, {1, 2, 4, 0, false}};
  EXPECT_EQ(tree.relation(gpu(0), gpu(1)), Relation::nvlink);
  const Route route = tree.route(gpu(1), gpu(0));
  EXPECT_EQ(route.nvlink_count, 18u);
  EXPECT_EQ(route.gb_per_s, 478.1);
  EXPECT_EQ(route.bottleneck, "NVLink x18");
  EXPECT_TRUE(route.hops.empty());
  EXPECT_FALSE(tree.route(gpu(1), gpu(2)).gb_per_s) << "not told";
  EXPECT_EQ(tree.relation(gpu(0), gpu(2)), Relation::same_root);
}

TEST(Routes, TheNarrowestLinkIsNamed) {
  Switches tree;
  tree.topology.pci[static_cast<std::size_t>(tree.topology.find_pci(*PciAddress::parse("04:00.0")))].link.width = 8;
  const Route trained_down = tree.route(gpu(0), nic(0));
  EXPECT_DOUBLE_EQ(trained_down.gb_per_s.value_or(0), kGen5x16Rate / 2);
  EXPECT_EQ(trained_down.bottleneck, "PCIe 5.0 x8 at 0000:04:00.0");
}

// The slower end of a link sets its speed, and an idle device's speed of now does not count.
TEST(Routes, SpeedsAreWhatBothEndsCanDo) {
  Tree tree;
  const int root = tree.add("00:01.0", -1, "pci0000:00", 0, true, {16, 16, 16, 16});
  const int upper = tree.bridge("01:00.0", root);
  tree.add_gpu(tree.device("03:00.0", tree.bridge("02:00.0", upper), {2.5, 16, 32, 16}));
  tree.add_gpu(tree.device("05:00.0", tree.add("00:02.0", -1, "pci0000:00", 0, true)));
  const Route route = tree.route(gpu(0), gpu(1));
  EXPECT_DOUBLE_EQ(route.gb_per_s.value_or(0), kGen5x16Rate / 2);
  EXPECT_EQ(route.bottleneck, "PCIe 4.0 x16 at 0000:01:00.0") << "the switch and the root port below which it is";
}

TEST(Routes, WhatLinksDoNotTellIsNotGuessed) {
  Tree tree;
  tree.add_nodes(1);
  tree.add_gpu(tree.add("00:05.0", -1, "pci0000:00", 0, false, {}));
  tree.add_gpu(tree.add("00:06.0", -1, "pci0000:00", 0, false, {0, 16, 32, 16}));
  tree.add_gpu(tree.add("00:07.0", -1, "pci0000:00", 0, false, {3, 16, 7, 16}));
  EXPECT_EQ(tree.relation(gpu(0), gpu(1)), Relation::same_root);
  EXPECT_FALSE(tree.route(gpu(0), gpu(2)).gb_per_s);
  EXPECT_TRUE(tree.route(gpu(0), gpu(2)).bottleneck.empty());
  EXPECT_DOUBLE_EQ(tree.route(gpu(0), gpu(1)).gb_per_s.value_or(0), kGen5x16Rate) << "of what is known";
}

TEST(Routes, TheAdaptersPortCanBeTheNarrowest) {
  Switches tree;
  tree.topology.nics[0].ports[0].rate_gbit_per_s = 200;
  const Route route = tree.route(gpu(0), nic(0));
  EXPECT_DOUBLE_EQ(route.gb_per_s.value_or(0), 25);
  EXPECT_EQ(route.bottleneck, "mlx5_0 port at 200 Gb/s");
  tree.topology.nics[0].ports.push_back(tree.topology.nics[0].ports[0]);
  EXPECT_EQ(tree.route(gpu(0), nic(0)).bottleneck, "mlx5_0 ports at 400 Gb/s");
  for (RdmaPort& port : tree.topology.nics[0].ports) port.state = "DOWN";
  EXPECT_EQ(tree.route(gpu(0), nic(0)).bottleneck, "PCIe 5.0 x16 at 0000:03:00.0") << "no rate without an active port";
}

TEST(Routes, WithoutAPciFunction) {
  Tree tree;
  tree.add_nodes(1);
  tree.add_gpu(tree.add("00:05.0", -1, "pci0000:00", 0, false));
  tree.add_nic("rxe0", -1, 2.5);
  EXPECT_EQ(tree.relation(gpu(0), nic(0)), Relation::unknown);
  EXPECT_EQ(tree.relation(nic(0), nic(0)), Relation::same_device);
}

TEST(Routes, IndexesOutOfRange) {
  const Switches tree;
  for (const int index : {-1, 3, 1 << 30}) {
    EXPECT_EQ(tree.route(gpu(index), gpu(0)).relation, Relation::unknown);
    EXPECT_EQ(tree.route(nic(0), nic(index)).relation, Relation::unknown);
    EXPECT_EQ(tree.route(node(index), node(index)).relation, Relation::unknown) << "not even to itself";
    EXPECT_TRUE(nearest_nics(tree.topology, index).empty());
  }
  Topology empty;
  EXPECT_EQ(route_between(empty, gpu(0), gpu(0)).relation, Relation::unknown);
}

// Discovery never makes such a tree, but a Topology is a plain record that anybody can fill.
TEST(Routes, ParentsInACircleEnd) {
  Tree tree;
  tree.add_gpu(tree.add("00:05.0", 1, "pci0000:00", 0, true));
  tree.add_gpu(tree.add("00:06.0", 0, "pci0000:00", 0, true));
  tree.topology.pci.push_back(tree.topology.pci[0]);
  tree.topology.pci[2].parent = 99;
  tree.topology.pci[2].address.bus = 9;
  tree.add_gpu(2);
  for (int i = 0; i < 3; ++i) EXPECT_NE(tree.relation(gpu(i), gpu((i + 1) % 3)), Relation::same_device);
}

}  // namespace
}  // namespace gigabar
