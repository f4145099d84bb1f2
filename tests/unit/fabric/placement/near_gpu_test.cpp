// SPDX-License-Identifier: Apache-2.0
// A fabric whose GPU is at the second of two NUMA nodes: its thread runs there and nothing of the program does.
#include <gtest/gtest.h>

#include "gigabar/fabric.hpp"
#include "platform/cpu_set.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/own_threads.hpp"
#include "unit/fabric/job/jobs.hpp"

namespace gigabar::test {
namespace {

std::string shown(const Fabric& fabric, const std::string& name) {
  for (const Setting& setting : fabric.settings()) {
    if (setting.name == name) return setting.value + " by " + setting.source;
  }
  return "nothing";
}

// Rank 0 of two keeps the directory, so that it waits for nobody.
FabricOptions rank_0(const FreePort& port) {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 2;
  options.master_address = "127.0.0.1";
  options.master_port = port.number();
  options.job_key = "sixteen bytes or more";
  options.transports = {TransportKind::local};
  return options;
}

void open_beside_a_gpu_of_node_1(const std::string& cpus_of_node_1, const FabricOptions& options, const std::string& expected,
                                 const std::string& cpus_of_thread) {
  FakeSession session;
  session.machine().gpus[0].numa_node = 1;
  session.tree().write("sys/devices/system/node/has_memory", "0-1\n");
  session.tree().write("sys/devices/system/node/node0/cpulist", "60000\n");
  session.tree().write("sys/devices/system/node/node1/cpulist", cpus_of_node_1 + "\n");
  session.start();
  const std::string main_before = cpus_of_main_thread();
  const auto fabric = Fabric::open(options);
  ASSERT_TRUE(fabric) << fabric.error().message();
  EXPECT_EQ(shown(*fabric, "cpus"), expected);
  EXPECT_EQ(cpu_list_text(fabric->cpus()), cpus_of_thread);
  const auto threads = threads_named("gigabar-fabric");
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_EQ(threads[0].cpus, cpus_of_thread.empty() ? main_before : cpus_of_thread);
  EXPECT_EQ(cpus_of_main_thread(), main_before) << "the program's";
}

ISOLATED_TEST(NearAGpu, TheThreadRunsOnItsNode) {
  const FreePort port;
  const std::string own = std::to_string(usable_cpus().back());
  open_beside_a_gpu_of_node_1(own + ",60001", rank_0(port), "near: " + own + " (node 1 of device 0) by default", own);
}

ISOLATED_TEST(NearAGpu, WithoutACpuThereNothingIsBound) {
  const FreePort port;
  open_beside_a_gpu_of_node_1("60001", rank_0(port),
                              "near: not bound (this process may use no CPU of node 1 of device 0) by default", "");
}

ISOLATED_TEST(NearAGpu, AnyBindsNothing) {
  const FreePort port;
  FabricOptions options = rank_0(port);
  options.cpus = "any";
  open_beside_a_gpu_of_node_1(std::to_string(usable_cpus().back()), options, "any by option", "");
}

}  // namespace
}  // namespace gigabar::test
