// SPDX-License-Identifier: Apache-2.0
// NUMA nodes of devices and pages: platform/numa.hpp.
#include "platform/numa.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
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

TEST_F(NumaTree, NodeOfAnRdmaDevice) {
  EXPECT_EQ(numa_node_of_rdma_device("mlx5_0"), -1) << "no file, as of software devices";
  tree_.write("sys/class/infiniband/mlx5_0/device/numa_node", "3\n");
  EXPECT_EQ(numa_node_of_rdma_device("mlx5_0"), 3);
  tree_.write("sys/class/infiniband/mlx5_0/device/numa_node", "-1\n");
  EXPECT_EQ(numa_node_of_rdma_device("mlx5_0"), -1);
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
  const Result<void> bound = bind_to_numa_node(page, 4096, 9);
  EXPECT_EQ(bound.status(), Status::invalid_argument);
  EXPECT_NE(bound.message().find("0, 1"), std::string::npos) << bound.message();
  ::munmap(page, 4096);
}

TEST_F(NumaTree, BindingWithoutNumaIsRefused) {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(bind_to_numa_node(page, 4096, 0).status(), Status::invalid_argument);
  ::munmap(page, 4096);
}

TEST_F(NumaTree, CpusOfANode) {
  EXPECT_TRUE(cpus_of_numa_node(0).empty()) << "no file";
  EXPECT_TRUE(cpus_of_numa_node(-1).empty());
  tree_.write("sys/devices/system/node/node0/cpulist", "0-2,64-65\n");
  tree_.write("sys/devices/system/node/node1/cpulist", "1030\n");
  tree_.write("sys/devices/system/node/node2/cpulist", "\n");
  EXPECT_EQ(cpus_of_numa_node(0), (std::vector<int>{0, 1, 2, 64, 65}));
  EXPECT_EQ(cpus_of_numa_node(1), std::vector<int>{1030}) << "there are more CPUs than nodes";
  EXPECT_TRUE(cpus_of_numa_node(2).empty()) << "memory only";
}

TEST_F(NumaTree, FreeBytesAreWhatCanBeHadWithoutKilling) {
  EXPECT_FALSE(free_bytes_of_numa_node(1)) << "no file";
  EXPECT_FALSE(free_bytes_of_numa_node(-1));
  tree_.write("sys/devices/system/node/node1/meminfo",
              "Node 1 MemTotal:       1000000 kB\nNode 1 MemFree:         600000 kB\nNode 1 Active(anon):     77777 kB\n"
              "Node 1 Inactive(anon):   66666 kB\nNode 1 Active(file):      1000 kB\nNode 1 Inactive(file):    2000 kB\n"
              "Node 1 FilePages:        90000 kB\nNode 1 Shmem:            87000 kB\nNode 1 SReclaimable:       500 kB\n");
  EXPECT_EQ(free_bytes_of_numa_node(1), std::uint64_t{603500} << 10) << "shared memory cannot be reclaimed";
  // The zones of other nodes do not count; "high:" of a CPU's list is not the zone's mark.
  tree_.write("proc/zoneinfo",
              "Node 0, zone   Normal\n  pages free     1\n        high     999\n        managed  100000\n"
              "        protection: (0, 0)\n"
              "Node 1, zone    DMA32\n  pages free     1\n        high     10\n        managed  1000\n"
              "        protection: (0, 0, 200)\n  pagesets\n    cpu: 0\n              high:     5000\n"
              "Node 1, zone   Normal\n  pages free     1\n        high     30\n        managed  1000\n"
              "        protection: (0, 0, 0)\n"
              "Node 1, zone  Movable\n  pages free     0\n        high     32\n        managed  0\n"
              "        protection: (0, 0, 0)\n");
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(free_bytes_of_numa_node(1), (std::uint64_t{603500} << 10) - (10 + 200 + 30) * page_bytes);
  tree_.write("sys/devices/system/node/node1/meminfo", "Node 1 MemFree:         1 kB\n");
  EXPECT_EQ(free_bytes_of_numa_node(1), 0u) << "the kernel's reserve is larger";
}

TEST_F(NumaTree, AllocationsCannotBeBoundToAMissingNode) {
  EXPECT_EQ(NumaAllocationPolicy::bind(0).status(), Status::invalid_argument) << "no NUMA";
  tree_.write("sys/devices/system/node/has_memory", "0-1\n");
  const auto bound = NumaAllocationPolicy::bind(9);
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message().find("0, 1"), std::string::npos) << bound.error().message();
  EXPECT_EQ(NumaAllocationPolicy::prefer(9).status(), Status::invalid_argument);
}

// The mode of this thread's policy, and whether `node` is in it.
struct ThreadPolicy {
  int mode = -1;
  NumaNodeMask nodes{};
  ThreadPolicy() { ::syscall(SYS_get_mempolicy, &mode, nodes.data(), static_cast<unsigned long>(kMaxNumaNodes) + 1, nullptr, 0UL); }
};

TEST(NumaOfThisMachine, AllocationPolicyHoldsForItsLife) {
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty()) GTEST_SKIP() << "this kernel has no NUMA";
  const ThreadPolicy before;
  {
    const auto first = NumaAllocationPolicy::bind(nodes.back());
    ASSERT_TRUE(first) << first.error().message();
    {
      const auto second = NumaAllocationPolicy::bind(nodes.front());
      ASSERT_TRUE(second) << second.error().message();
      EXPECT_EQ(ThreadPolicy().mode, MPOL_BIND);
    }
    const ThreadPolicy inside;
    EXPECT_EQ(inside.mode, MPOL_BIND) << "the inner one gave back the outer one's";
    EXPECT_EQ(inside.nodes[static_cast<std::size_t>(nodes.back()) / 64] >> (nodes.back() % 64) & 1, 1u);
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char*>(page) = 1;
    EXPECT_EQ(numa_node_of_page(reinterpret_cast<std::uintptr_t>(page)), nodes.back());
    ::munmap(page, 4096);
  }
  const ThreadPolicy after;
  EXPECT_EQ(after.mode, before.mode);
  EXPECT_EQ(after.nodes, before.nodes);
}

TEST(NumaOfThisMachine, PreferredNodesArePreferredOnly) {
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty()) GTEST_SKIP() << "this kernel has no NUMA";
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_TRUE(prefer_numa_node(page, 4096, nodes.back()));
  int mode = -1;
  ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, page, static_cast<unsigned long>(MPOL_F_ADDR));
  EXPECT_EQ(mode, MPOL_PREFERRED);
  *static_cast<volatile char*>(page) = 1;
  EXPECT_EQ(numa_node_of_page(reinterpret_cast<std::uintptr_t>(page)), nodes.back());
  ::munmap(page, 4096);
  {
    const auto policy = NumaAllocationPolicy::prefer(nodes.front());
    ASSERT_TRUE(policy) << policy.error().message();
    EXPECT_EQ(ThreadPolicy().mode, MPOL_PREFERRED);
  }
  EXPECT_NE(ThreadPolicy().mode, MPOL_PREFERRED) << "the policy before comes back";
}

TEST(NumaOfThisMachine, EveryPageIsPlaced) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 1300;  // more than a batch
  void* pages = ::mmap(nullptr, kPages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::madvise(pages, kPages * page_bytes, MADV_NOHUGEPAGE);
  const PagePlacement absent = placement_of_pages(pages, kPages * page_bytes);
  EXPECT_EQ(absent.unknown_pages, kPages);
  EXPECT_TRUE(absent.pages_by_node.empty());
  for (std::size_t i = 0; i < 1000; ++i) static_cast<volatile char*>(pages)[i * page_bytes] = 1;
  const PagePlacement placed = placement_of_pages(static_cast<char*>(pages) + 1, kPages * page_bytes - 2, page_bytes);
  EXPECT_EQ(placed.total_pages, kPages);
  EXPECT_EQ(placed.asked_pages, kPages);
  std::size_t known = 0;
  for (const auto& [node, count] : placed.pages_by_node) known += count;
  EXPECT_EQ(known + placed.unknown_pages, kPages);
  if (!numa_nodes().empty()) {
    EXPECT_EQ(known, 1000u);
  }
  ::munmap(pages, kPages * page_bytes);
  EXPECT_EQ(placement_of_pages(nullptr, 0).total_pages, 0u);
}

TEST(NumaOfThisMachine, OfVeryManyPagesSomeAreAsked) {
  const std::size_t bytes = (std::size_t{1} << 30) + 4096;
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const PagePlacement placement = placement_of_pages(pages, bytes, 4096);
  EXPECT_EQ(placement.total_pages, 262145u);
  EXPECT_EQ(placement.asked_pages, 131073u) << "every second";
  EXPECT_EQ(placement.unknown_pages, placement.asked_pages);
  ::munmap(pages, bytes);
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
