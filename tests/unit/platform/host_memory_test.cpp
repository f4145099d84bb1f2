// SPDX-License-Identifier: Apache-2.0
// How much memory is left to this process: platform/host_memory.hpp, over trees of the test's own.
#include "platform/host_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "platform/roots.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

std::uint64_t available_host_bytes() { return available_host_memory().bytes; }

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class HostMemoryTree : public testing::Test {
 protected:
  HostMemoryTree() {
    set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"});
    tree_.write("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:         102400 kB\nMemAvailable:   4194304 kB\n");
  }
  ~HostMemoryTree() override { set_platform_roots({}); }

  void has_version_2(const std::string& group, const std::string& root = "/") {
    tree_.write("proc/self/cgroup", "0::" + group + "\n");
    tree_.write("proc/self/mountinfo", "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n31 23 0:28 " + root +
                                           " /sys/fs/cgroup rw,nosuid,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void write_group(const std::string& folder, const std::string& limit, std::uint64_t used_bytes, std::uint64_t cached_bytes) {
    tree_.write(folder + "/memory.max", limit + "\n");
    tree_.write(folder + "/memory.current", std::to_string(used_bytes) + "\n");
    tree_.write(folder + "/memory.stat", "anon 1\nfile 999999999\nshmem 888888\ninactive_file " + std::to_string(cached_bytes / 2) +
                                             "\nactive_file " + std::to_string(cached_bytes - cached_bytes / 2) + "\n");
  }

  test::TemporaryFolder tree_;
};

TEST_F(HostMemoryTree, WithoutGroupsItIsTheMachines) {
  EXPECT_EQ(available_host_bytes(), 4096 * kMiB);
  EXPECT_EQ(available_host_memory().limited_by, "the machine");
}

TEST_F(HostMemoryTree, AMachineThatSaysNothingLimitsNothing) {
  tree_.write("proc/meminfo", "");
  EXPECT_EQ(available_host_bytes(), UINT64_MAX);
  EXPECT_TRUE(available_host_memory().limited_by.empty());
}

TEST_F(HostMemoryTree, TheTightestLevelOfVersion2Counts) {
  has_version_2("/a/b");
  write_group("sys/fs/cgroup/a/b", "max", 10 * kMiB, 0);
  EXPECT_EQ(available_host_bytes(), 4096 * kMiB) << "no limit";
  write_group("sys/fs/cgroup/a/b", std::to_string(1000 * kMiB), 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(available_host_bytes(), 800 * kMiB) << "the files' cache can be taken back";
  write_group("sys/fs/cgroup/a", std::to_string(1200 * kMiB), 900 * kMiB, 0);
  EXPECT_EQ(available_host_bytes(), 300 * kMiB) << "of a group above";
  EXPECT_EQ(available_host_memory().limited_by, "memory control group " + tree_.path() + "/sys/fs/cgroup/a");
  write_group("sys/fs/cgroup", std::to_string(100 * kMiB), 200 * kMiB, 0);
  EXPECT_EQ(available_host_bytes(), 0u) << "a container's own root has files too";
}

TEST_F(HostMemoryTree, TheStallingMarkCountsAsALimit) {
  has_version_2("/a");
  write_group("sys/fs/cgroup/a", "max", 100 * kMiB, 0);
  tree_.write("sys/fs/cgroup/a/memory.high", std::to_string(150 * kMiB) + "\n");
  EXPECT_EQ(available_host_bytes(), 50 * kMiB);
}

TEST_F(HostMemoryTree, MoreCacheThanUseIsNoUse) {
  has_version_2("/a");
  write_group("sys/fs/cgroup/a", std::to_string(100 * kMiB), 40 * kMiB, 60 * kMiB);
  EXPECT_EQ(available_host_bytes(), 100 * kMiB);
}

TEST_F(HostMemoryTree, Version1HasItsOwnNames) {
  tree_.write("proc/self/cgroup", "5:devices:/\n4:cpu,memory:/job/7\n0::/\n");
  tree_.write("proc/self/mountinfo",
              "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuset\n"
              "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu,memory\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  tree_.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree_.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(available_host_bytes(), 4096 * kMiB) << "that number means no limit";
  tree_.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(500 * kMiB) + "\n");
  tree_.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(200 * kMiB) + "\n");
  tree_.write("sys/fs/cgroup/memory/job/memory.stat",
              "active_file 7\ntotal_inactive_file " + std::to_string(50 * kMiB) + "\ntotal_active_file 0\n");
  EXPECT_EQ(available_host_bytes(), 350 * kMiB) << "cache of the groups below counts too";
}

TEST_F(HostMemoryTree, AContainersGroupIsBelowWhatIsMounted) {
  has_version_2("/docker/abc/inner", "/docker/abc");
  write_group("sys/fs/cgroup", std::to_string(700 * kMiB), 0, 0);
  write_group("sys/fs/cgroup/inner", std::to_string(600 * kMiB), 0, 0);
  EXPECT_EQ(available_host_bytes(), 600 * kMiB);
  has_version_2("/../outside", "/");
  EXPECT_EQ(available_host_bytes(), 700 * kMiB) << "what cannot be seen is not asked";
  has_version_2("/elsewhere", "/docker/abc");
  EXPECT_EQ(available_host_bytes(), 700 * kMiB);
}

TEST_F(HostMemoryTree, NonsenseLimitsNothing) {
  has_version_2("/a");
  write_group("sys/fs/cgroup/a", "many", 0, 0);
  EXPECT_EQ(available_host_bytes(), 4096 * kMiB);
  for (const char* mounts : {"", "\n", "31 23 0:28 / /sys/fs/cgroup rw -\n", "- - - - - - - - -\n"}) {
    tree_.write("proc/self/mountinfo", mounts);
    EXPECT_EQ(available_host_bytes(), 4096 * kMiB) << "'" << mounts << "'";
  }
}

TEST(NumberBehind, TakesWholeKeysOnly) {
  EXPECT_EQ(number_behind("inactive_file 5\nactive_file 6\n", "active_file"), 6u);
  EXPECT_EQ(number_behind("Node 0 MemFree:   2 kB\n", "MemFree"), 2048u);
  EXPECT_EQ(number_behind("MemFreeAll: 1 kB\nMemFree: 2\n", "MemFree"), 2u);
  EXPECT_FALSE(number_behind("MemFree: x kB\n", "MemFree"));
  EXPECT_FALSE(number_behind("MemFree:\n 7 kB\n", "MemFree"));
  EXPECT_FALSE(number_behind("", "MemFree"));
}

TEST(HostMemoryOfThisMachine, ThereIsSome) {
  EXPECT_GT(available_host_bytes(), kMiB);
  EXPECT_LT(available_host_bytes(), UINT64_MAX) << available_host_memory().limited_by;
}

}  // namespace
}  // namespace gigabar
