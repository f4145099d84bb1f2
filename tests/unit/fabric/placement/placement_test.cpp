// SPDX-License-Identifier: Apache-2.0
// Which CPUs and which node: what is asked for, on planted machines whose nodes hold this process's CPUs, or others.
#include "fabric/placement.hpp"

#include <gtest/gtest.h>

#include "fabric/settings.hpp"
#include "platform/cpu_set.hpp"
#include "platform/roots.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar::fabric {
namespace {

using Cpus = std::vector<int>;
constexpr const char* kOthers = "60000-60003";  // CPUs that no process of the test's machine may use

class PlantedMachine : public testing::Test {
 protected:
  PlantedMachine() { set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"}); }
  ~PlantedMachine() override { set_platform_roots({}); }

  void plant_node(int node, const std::string& cpus) const {
    tree_.write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", cpus + "\n");
  }
  // Node 0 is of other CPUs, node 1 of this process's and others.
  void plant_two_nodes() const {
    tree_.write("sys/devices/system/node/has_memory", "0-1\n");
    plant_node(0, kOthers);
    plant_node(1, own_text_ + ",60004");
  }
  static Placement near(const std::optional<Neighbour>& neighbour) { return resolve_placement({}, neighbour); }
  static Placement listed(const Cpus& cpus) { return resolve_placement({.kind = CpuWish::Kind::listed, .cpus = cpus}, {}); }
  static void expect_not_bound(const Placement& placement, const std::string& why) {
    EXPECT_TRUE(placement.cpus.empty());
    EXPECT_EQ(placement.numa_node, -1);
    EXPECT_EQ(placement.why, "near: not bound (" + why + ")");
  }

  const test::TemporaryFolder tree_;
  const Cpus own_ = usable_cpus();
  const std::string own_text_ = cpu_list_text(own_);
};

// --- Near ------------------------------------------------------------------------------------------------------------------------

TEST_F(PlantedMachine, NearIsTheNodeOfTheDevice) {
  plant_two_nodes();
  const Placement placement = near(Neighbour{"device 3", 1});
  EXPECT_EQ(placement.cpus, own_) << "and none that this process may not use";
  EXPECT_EQ(placement.numa_node, 1);
  EXPECT_EQ(placement.why, "near: " + own_text_ + " (node 1 of device 3)");
}

TEST_F(PlantedMachine, NearWithoutAllowedCpus) {
  plant_two_nodes();
  expect_not_bound(near(Neighbour{"device 0", 0}), "this process may use no CPU of node 0 of device 0");
}

TEST_F(PlantedMachine, NearWithOneNode) {
  tree_.write("sys/devices/system/node/has_memory", "0\n");
  plant_node(0, own_text_);
  expect_not_bound(near(Neighbour{"device 0", 0}), "one NUMA node");
}

TEST_F(PlantedMachine, NearWithoutNuma) { expect_not_bound(near(Neighbour{"device 0", 0}), "this machine has no NUMA"); }

TEST_F(PlantedMachine, NearWithNothingToBeNearTo) {
  plant_two_nodes();
  expect_not_bound(near({}), "no GPU, and no rail of verbs");
  expect_not_bound(near(Neighbour{"rail mlx5_0/1", -1}), "the machine does not tell the node of rail mlx5_0/1");
}

TEST_F(PlantedMachine, NearANodeOfMemoryOnly) {
  plant_two_nodes();
  plant_node(2, "");
  expect_not_bound(near(Neighbour{"device 0", 2}), "node 2 of device 0 has no CPUs");
}

// --- Any, and lists --------------------------------------------------------------------------------------------------------------

TEST_F(PlantedMachine, AnyBindsNothing) {
  plant_two_nodes();
  const Placement placement = resolve_placement({.kind = CpuWish::Kind::any, .cpus = {}}, Neighbour{"device 0", 1});
  EXPECT_TRUE(placement.cpus.empty());
  EXPECT_EQ(placement.numa_node, -1);
  EXPECT_EQ(placement.why, "any");
}

TEST_F(PlantedMachine, AListOfOneNodeNamesItsMemory) {
  plant_two_nodes();
  const Placement placement = listed(own_);
  EXPECT_EQ(placement.cpus, own_);
  EXPECT_EQ(placement.numa_node, 1);
  EXPECT_EQ(placement.why, own_text_ + " (node 1)");
}

TEST_F(PlantedMachine, AListOfSeveralNodesBindsNoMemory) {
  plant_two_nodes();
  const Placement placement = listed({60000, 60004});
  EXPECT_EQ(placement.cpus, (Cpus{60000, 60004}));
  EXPECT_EQ(placement.numa_node, -1);
  EXPECT_EQ(placement.why, "60000,60004 (nodes 0-1)");
}

TEST_F(PlantedMachine, AListPartlyOfANodeWithoutMemory) {
  plant_two_nodes();
  EXPECT_EQ(listed({60000, 61000}).numa_node, -1) << "61000 is of none";
}

TEST_F(PlantedMachine, AListWithoutNuma) {
  const Placement placement = listed({own_.front()});
  EXPECT_EQ(placement.numa_node, -1);
  EXPECT_EQ(placement.why, std::to_string(own_.front()));
}

// --- What is refused -------------------------------------------------------------------------------------------------------------

TEST_F(PlantedMachine, WishesAreRead) {
  EXPECT_EQ(parse_cpu_wish("cpus", "near")->kind, CpuWish::Kind::near);
  EXPECT_EQ(parse_cpu_wish("cpus", "any")->kind, CpuWish::Kind::any);
  const auto wish = parse_cpu_wish("cpus", own_text_);
  ASSERT_TRUE(wish) << wish.error().message();
  EXPECT_EQ(wish->kind, CpuWish::Kind::listed);
  EXPECT_EQ(wish->cpus, own_);
}

void expect_refused(const std::string& value, const std::string& cause, const std::string& remedy) {
  const auto wish = parse_cpu_wish("GIGABAR_CPUS", value);
  ASSERT_FALSE(wish) << value;
  EXPECT_EQ(wish.status(), Status::invalid_argument);
  EXPECT_EQ(wish.error().record().object, "GIGABAR_CPUS");
  EXPECT_EQ(wish.error().record().cause, "'" + value + "' " + cause);
  EXPECT_EQ(wish.error().record().remedy, remedy);
}

TEST_F(PlantedMachine, MalformedWishesAreRefused) {
  for (const char* value : {"", "Near", "all", "0-", "1,", "70000", "-1"}) {
    expect_refused(value, "is not allowed", "give near, any, or a list of CPUs such as 0-7,16");
  }
}

TEST_F(PlantedMachine, CpusThatCannotBeUsedAreNamed) {
  const std::string remedy = "give CPUs of " + own_text_ + ", or near, or any";
  expect_refused(own_text_ + ",60001", "is not allowed: this process may not use CPU 60001", remedy);
  tree_.write("sys/devices/system/cpu/online", own_text_ + ",60001\n");
  expect_refused("60001", "is not allowed: this process may not use CPU 60001", remedy);
  expect_refused(own_text_ + ",60002", "is not allowed: this machine has no CPU 60002 online", remedy);
}

// --- As a setting ----------------------------------------------------------------------------------------------------------------

std::string shown(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings.table) {
    if (setting.name == "cpus") text += setting.value + " by " + setting.source;
  }
  return text;
}

TEST_F(PlantedMachine, OptionThenVariableThenDefault) {
  EXPECT_EQ(shown(*find_settings({})), "near by default");
  const test::ScopedEnvironment variable("GIGABAR_CPUS", "any");
  EXPECT_EQ(shown(*find_settings({})), "any by GIGABAR_CPUS");
  FabricOptions options;
  options.cpus = own_text_;
  const auto settings = find_settings(options);
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(shown(*settings), own_text_ + " by option");
  EXPECT_EQ(settings->cpus.cpus, own_);
}

TEST_F(PlantedMachine, ErrorsNameWhoSetIt) {
  const test::ScopedEnvironment variable("GIGABAR_CPUS", "some");
  EXPECT_EQ(find_settings({}).error().record().object, "GIGABAR_CPUS");
  FabricOptions options;
  options.cpus = "60001";
  EXPECT_EQ(find_settings(options).error().record().object, "cpus");
  options.cpus = "";
  EXPECT_EQ(find_settings(options).status(), Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar::fabric
