// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs: platform/cpu_set.hpp.
#include "platform/cpu_set.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "platform/roots.hpp"
#include "support/own_threads.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

using Cpus = std::vector<int>;

TEST(CpuSet, ListsAreRead) {
  EXPECT_EQ(parse_cpu_list("0"), Cpus{0});
  EXPECT_EQ(parse_cpu_list("0-3,16"), (Cpus{0, 1, 2, 3, 16}));
  EXPECT_EQ(parse_cpu_list("16,2-3,3-4,16"), (Cpus{2, 3, 4, 16})) << "in any order, more than once";
  EXPECT_EQ(parse_cpu_list("65535"), Cpus{65535});
}

TEST(CpuSet, OtherTextIsNoList) {
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1-", "-1", "3-2", "0-65536", "65536", "99999999999999999999", "1 ", " 1",
                           "one", "0x1", "1-2-3"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << "'" << text << "'";
  }
}

TEST(CpuSet, ListsAreWritten) {
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_EQ(cpu_list_text({5}), "5");
  EXPECT_EQ(cpu_list_text({0, 1}), "0-1");
  EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 5, 7, 8, 65535}), "0-3,5,7-8,65535");
}

TEST(CpuSet, Common) {
  EXPECT_EQ(cpus_in_both({0, 1, 2, 9}, {1, 2, 3}), (Cpus{1, 2}));
  EXPECT_TRUE(cpus_in_both({0}, {}).empty());
  EXPECT_EQ(first_cpu_outside({1, 2, 3}, {1, 3}), 2);
  EXPECT_FALSE(first_cpu_outside({1, 3}, {1, 2, 3}));
  EXPECT_FALSE(first_cpu_outside({}, {}));
}

TEST(CpuSet, OnlineIsWhatTheMachineSays) {
  const test::TemporaryFolder tree;
  set_platform_roots({tree.path() + "/sys", tree.path() + "/proc", tree.path() + "/dev"});
  EXPECT_TRUE(online_cpus().empty()) << "no file";
  tree.write("sys/devices/system/cpu/online", "0-1,4\n");
  EXPECT_EQ(online_cpus(), (Cpus{0, 1, 4}));
  tree.write("sys/devices/system/cpu/online", "many\n");
  EXPECT_TRUE(online_cpus().empty());
  set_platform_roots({});
}

TEST(CpuSet, ThreadsAreKept) {
  const Cpus before = usable_cpus();
  ASSERT_FALSE(before.empty());
  EXPECT_FALSE(first_cpu_outside(before, online_cpus()));
  std::thread([&] {
    EXPECT_EQ(usable_cpus(), before) << "inherited";
    EXPECT_EQ(keep_this_thread_on({}), 0);
    EXPECT_EQ(usable_cpus(), before) << "none: not bound";
    settle_this_thread("test-settled", {before.back()});
    EXPECT_EQ(usable_cpus(), Cpus{before.back()});
    const auto named = test::threads_named("test-settled");
    ASSERT_EQ(named.size(), 1U);
    EXPECT_EQ(named[0].cpus, std::to_string(before.back()));
    EXPECT_EQ(keep_this_thread_on({65535}), EINVAL) << "there is no such CPU";
    settle_this_thread("test-unsettled", {65535});
    EXPECT_EQ(usable_cpus(), Cpus{before.back()}) << "stays as it was";
  }).join();
  EXPECT_EQ(usable_cpus(), before) << "of that thread only";
}

}  // namespace
}  // namespace gigabar
