// NUMA nodes of devices and pages: platform/numa.hpp.
#include "platform/numa.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "platform/roots.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

class NumaTree : public testing::Test {
 protected:
  NumaTree() { set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"}); }
  ~NumaTree() override { set_platform_roots({}); }
  test::TemporaryFolder tree_;
};

TEST_F(NumaTree, NodeOfADevice) {
  const PciAddress address{0, 0x3b, 0, 0};
  EXPECT_EQ(numa_node_of_device(address), -1) << "no file";
  tree_.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  EXPECT_EQ(numa_node_of_device(address), 1);
  for (const char* unknown : {"-1\n", "", "many\n", "99999\n"}) {
    tree_.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", unknown);
    EXPECT_EQ(numa_node_of_device(address), -1) << "'" << unknown << "'";
  }
}

TEST_F(NumaTree, NodesFromTheKernelsList) {
  EXPECT_TRUE(numa_nodes().empty());
  tree_.write("sys/devices/system/node/has_memory", "0\n");
  EXPECT_EQ(numa_nodes(), std::vector<int>{0});
  tree_.write("sys/devices/system/node/has_memory", "0-2,5\n");
  EXPECT_EQ(numa_nodes(), (std::vector<int>{0, 1, 2, 5}));
  tree_.write("sys/devices/system/node/has_memory", "0,x,3-,7-4294967295,2\n");
  EXPECT_EQ(numa_nodes(), (std::vector<int>{0, 2})) << "what is no number adds nothing";
}

TEST_F(NumaTree, BindingToAMissingNodeNamesThoseThatExist) {
  tree_.write("sys/devices/system/node/has_memory", "0-1\n");
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const Outcome bound = bind_to_numa_node(page, 4096, 9);
  EXPECT_EQ(bound.status(), Status::invalid_argument);
  EXPECT_NE(bound.message().find("0, 1"), std::string::npos) << bound.message();
  ::munmap(page, 4096);
}

TEST_F(NumaTree, BindingWithoutNumaIsRefused) {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(bind_to_numa_node(page, 4096, 0).status(), Status::invalid_argument);
  ::munmap(page, 4096);
}

TEST(NumaOfThisMachine, ATouchedPageIsOnAKnownNodeAndAnUntouchedOneIsOnNone) {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(numa_node_of_page(reinterpret_cast<std::uintptr_t>(page)), -1);
  *static_cast<volatile char*>(page) = 1;
  const int node = numa_node_of_page(reinterpret_cast<std::uintptr_t>(page));
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty()) {
    EXPECT_LE(node, 0) << "a kernel without NUMA has node 0 or none";
  } else {
    EXPECT_NE(std::find(nodes.begin(), nodes.end(), node), nodes.end()) << node;
  }
  ::munmap(page, 4096);
  EXPECT_EQ(numa_node_of_page(0), -1);
}

}  // namespace
}  // namespace gigabar
