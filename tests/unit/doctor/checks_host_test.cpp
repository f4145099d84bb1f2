// SPDX-License-Identifier: Apache-2.0
// lim.memlock, numa.*, cpu.governor, huge: each verdict of each check, on machines made for it.
#include <gtest/gtest.h>

#include "unit/doctor/patient.hpp"

namespace gigabar {
namespace {

using test::expect;
using test::of_subject;
using test::TestPatient;
using test::to_text;
using test::value_of;

// ---- lim.memlock

TestPatient with_limit(std::uint64_t bytes, bool has_rdma) {
  TestPatient machine;
  machine.answers.can_lock_memory = false;
  machine.answers.memlock_bytes = bytes;
  if (has_rdma) machine.nic("mlx5_0", "0000:3b:00.0");
  return machine;
}

TEST(Memlock, PassesWithoutLimit) {
  expect(with_limit(UINT64_MAX, true), "lim.memlock", Verdict::pass, "not limited");
  TestPatient machine = with_limit(65536, true);
  machine.answers.can_lock_memory = true;
  expect(machine, "lim.memlock", Verdict::pass, "CAP_IPC_LOCK");
}

TEST(Memlock, FailsASmallLimitBesideRdma) {
  expect(with_limit(65536, true), "lim.memlock", Verdict::fail, "64 KiB only", "limits.conf");
  expect(with_limit(8U << 20, true), "lim.memlock", Verdict::fail, "8 MiB only", "LimitMEMLOCK=infinity");
  expect(with_limit((64U << 20) - 1, true), "lim.memlock", Verdict::fail, "only", "--ulimit memlock=-1");
}

TEST(Memlock, WarnsOfALimitThatMayNotDo) {
  expect(with_limit(8U << 20, false), "lim.memlock", Verdict::warn, "8 MiB only", "limits.conf");
  expect(with_limit(64U << 20, true), "lim.memlock", Verdict::warn, "64 MiB only", "limits.conf");
}

TEST(Memlock, PassesAnAmpleLimit) {
  expect(with_limit(64U << 20, false), "lim.memlock", Verdict::pass, "64 MiB");
  expect(with_limit(1U << 30, true), "lim.memlock", Verdict::pass, "1 GiB");
}

TEST(Memlock, ReadsTheProcessWhenNobodyWasAsked) {
  const std::string limits =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max cpu time              unlimited            unlimited            seconds   \n"
      "Max locked memory         ";
  TestPatient machine;
  machine.nic("mlx5_0", "0000:3b:00.0");
  machine.file("/proc/self/limits", limits + "8388608              unlimited            bytes     \n");
  expect(machine, "lim.memlock", Verdict::fail, "8 MiB only", "limits.conf");
  machine.file("/proc/self/limits", limits + "unlimited            unlimited            bytes     \n");
  expect(machine, "lim.memlock", Verdict::pass, "not limited");
  machine.file("/proc/self/limits", limits + "65536                65536                bytes     \n");
  machine.file("/proc/self/status", "Name:\tcat\nCapEff:\t0000000000004000\n");
  expect(machine, "lim.memlock", Verdict::pass, "CAP_IPC_LOCK");
  machine.file("/proc/self/status", "CapEff:\t000001ffffffbfff\n");
  expect(machine, "lim.memlock", Verdict::fail, "64 KiB only", "limits.conf");
}

TEST(Memlock, DoesNotKnowWithoutLimits) {
  expect(TestPatient(), "lim.memlock", Verdict::unknown, "not told", "ulimit -l");
  TestPatient machine;
  machine.unreadable("/proc/self/limits");
  expect(machine, "lim.memlock", Verdict::unknown, "not told", "ulimit -l");
  EXPECT_EQ(value_of(machine.run("lim.memlock").at(0), "/proc/self/limits Max locked memory"), "permission denied");
  machine.remove("/proc/self/limits").file("/proc/self/limits", "Max locked memory         lots     lots     bytes\n");
  expect(machine, "lim.memlock", Verdict::unknown, "not told", "ulimit -l");
}

// ---- numa.cpu

std::vector<int> range(int first, int last) {
  std::vector<int> cpus;
  for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

// Node 0 has CPUs 0-15, node 1 has 16-31; the GPU is on node 0 and mlx5_0 on node 1.
TestPatient two_sockets(const std::string& allowed) {
  TestPatient machine;
  machine.topology.numa_nodes = {{0, 0, range(0, 15), 1}, {1, 1, range(16, 31), 1}};
  machine.gpu("0000:3b:00.0", {}, 0);
  machine.nic("mlx5_0", "0000:86:00.0", {}, 1);
  machine.answers.allowed_cpus = allowed;
  return machine;
}

TEST(NumaCpu, PassesAProcessNextToEverything) {
  expect(two_sockets("0-31"), "numa.cpu", Verdict::pass, "next to GPU 0000:3b:00.0 and mlx5_0");
  expect(two_sockets("3,16"), "numa.cpu", Verdict::pass, "next to GPU 0000:3b:00.0 and mlx5_0");
}

TEST(NumaCpu, WarnsOfTheDeviceOnTheOtherNode) {
  const std::vector<Finding> findings = two_sockets("0-15").run("numa.cpu");
  ASSERT_EQ(findings.size(), 2u) << to_text(findings);
  const Finding nic = of_subject(findings, "mlx5_0");
  EXPECT_EQ(nic.verdict, Verdict::warn);
  EXPECT_NE(nic.statement.find("no CPU of NUMA node 1"), std::string::npos) << to_text(findings);
  EXPECT_NE(nic.remedy.find("numactl --cpunodebind=1 --membind=1"), std::string::npos) << to_text(findings);
  EXPECT_EQ(value_of(nic, "sched_getaffinity"), "0-15");
  EXPECT_EQ(value_of(nic, "numa_node of mlx5_0"), "1");
  const Finding near = of_subject(findings, "");
  EXPECT_EQ(near.verdict, Verdict::pass);
  EXPECT_NE(near.statement.find("GPU 0000:3b:00.0"), std::string::npos);
  EXPECT_EQ(near.statement.find("mlx5_0"), std::string::npos);
}

TEST(NumaCpu, ReadsTheProcessWhenNobodyWasAsked) {
  TestPatient machine = two_sockets("");
  machine.answers.allowed_cpus.reset();
  machine.file("/proc/self/status", "Cpus_allowed:\tffff0000\nCpus_allowed_list:\t16-31\n");
  const Finding gpu = of_subject(machine.run("numa.cpu"), "GPU 0000:3b:00.0");
  EXPECT_EQ(gpu.verdict, Verdict::warn);
  EXPECT_EQ(value_of(gpu, "/proc/self/status Cpus_allowed_list"), "16-31");
}

TEST(NumaCpu, DoesNotKnowADeviceWithoutNode) {
  TestPatient machine = two_sockets("0-31");
  machine.topology.gpus[0].numa_node = -1;
  const std::vector<Finding> findings = machine.run("numa.cpu");
  const Finding gpu = of_subject(findings, "GPU 0000:3b:00.0");
  EXPECT_EQ(gpu.verdict, Verdict::unknown);
  EXPECT_NE(gpu.statement.find("does not say which"), std::string::npos) << to_text(findings);
  EXPECT_EQ(value_of(gpu, "numa_node of GPU 0000:3b:00.0"), "-1");
  EXPECT_EQ(of_subject(findings, "").verdict, Verdict::pass);
}

TEST(NumaCpu, DoesNotKnowANodeWithoutCpus) {
  TestPatient machine = two_sockets("0-31");
  machine.topology.numa_nodes.push_back({2, -1, {}, 1});
  machine.topology.gpus[0].numa_node = 2;
  const Finding on_memory = of_subject(machine.run("numa.cpu"), "GPU 0000:3b:00.0");
  EXPECT_EQ(on_memory.verdict, Verdict::unknown);
  EXPECT_NE(on_memory.statement.find("has no CPUs"), std::string::npos);
  machine.topology.gpus[0].numa_node = 77;
  EXPECT_EQ(of_subject(machine.run("numa.cpu"), "GPU 0000:3b:00.0").verdict, Verdict::unknown);
}

TEST(NumaCpu, DoesNotKnowWithoutAListOfCpus) {
  for (const std::string list : {"", "abc", "3-1", "1,,2", "-", "0-99999999", "0-15;16"}) {
    expect(two_sockets(list), "numa.cpu", Verdict::unknown, "not told", "taskset");
  }
  TestPatient machine = two_sockets("");
  machine.answers.allowed_cpus.reset();
  expect(machine, "numa.cpu", Verdict::unknown, "not told", "taskset");
  EXPECT_EQ(value_of(machine.run("numa.cpu").at(0), "/proc/self/status Cpus_allowed_list"), "missing");
}

TEST(NumaCpu, NeedsDevicesAndNodes) {
  expect(TestPatient(), "numa.cpu", Verdict::skip, "neither a GPU nor an RDMA adapter");
  TestPatient machine = two_sockets("0-15");
  machine.topology.numa_nodes.pop_back();
  expect(machine, "numa.cpu", Verdict::pass, "one NUMA node");
  machine.topology.numa_nodes.clear();
  expect(machine, "numa.cpu", Verdict::unknown, "not known", "numactl");
}

// ---- numa.balance

TEST(NumaBalance, PassesAKernelThatLeavesPages) {
  TestPatient machine = two_sockets("0-31");
  machine.file("/proc/sys/kernel/numa_balancing", "0\n");
  expect(machine, "numa.balance", Verdict::pass, "leaves pages on their NUMA node");
}

TEST(NumaBalance, WarnsOfAKernelThatMovesPages) {
  TestPatient machine = two_sockets("0-31");
  machine.file("/proc/sys/kernel/numa_balancing", "1\n");
  expect(machine, "numa.balance", Verdict::warn, "numa_balancing is 1", "sysctl -w kernel.numa_balancing=0");
  machine.file("/proc/sys/kernel/numa_balancing", "2\n");
  expect(machine, "numa.balance", Verdict::warn, "numa_balancing is 2", "sysctl -w kernel.numa_balancing=0");
}

TEST(NumaBalance, MentionsUnusualNodes) {
  TestPatient machine = two_sockets("0-31");
  machine.file("/proc/sys/kernel/numa_balancing", "0\n");
  machine.topology.numa_nodes[1].package = 0;
  machine.topology.numa_nodes.push_back({2, -1, {}, 1});
  machine.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n");
  expect(machine, "numa.balance", Verdict::pass, "2 nodes on 1 package (NPS above 1");
  expect(machine, "numa.balance", Verdict::pass, "node 2 has memory only");
  machine.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n");
  EXPECT_EQ(machine.run("numa.balance").at(0).statement.find("NPS"), std::string::npos);
}

TEST(NumaBalance, DoesNotKnowWithoutTheSetting) {
  expect(two_sockets("0-31"), "numa.balance", Verdict::unknown, "does not say", "CONFIG_NUMA_BALANCING");
  TestPatient machine = two_sockets("0-31");
  machine.unreadable("/proc/sys/kernel/numa_balancing");
  expect(machine, "numa.balance", Verdict::unknown, "could not be read", "sysctl");
  machine.topology.numa_nodes.clear();
  expect(machine, "numa.balance", Verdict::unknown, "not known", "numactl");
}

TEST(NumaBalance, SkipsOneNode) {
  TestPatient machine = two_sockets("0-15");
  machine.topology.numa_nodes.pop_back();
  expect(machine, "numa.balance", Verdict::skip, "one NUMA node");
}

// ---- cpu.governor

TestPatient with_governors(const std::vector<std::string>& governors) {
  TestPatient machine;
  for (std::size_t i = 0; i < governors.size(); ++i) {
    machine.file("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/cpufreq/scaling_governor", governors[i] + "\n");
  }
  return machine;
}

TEST(Governor, PassesPerformance) {
  TestPatient machine = with_governors({"performance", "performance", "performance"});
  machine.file("/sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
  expect(machine, "cpu.governor", Verdict::pass, "performance on 3 CPUs");
}

TEST(Governor, WarnsOfAnyOther) {
  expect(with_governors({"performance", "powersave", "powersave"}), "cpu.governor", Verdict::warn,
         "performance on 1 CPU and powersave on 2 CPUs", "cpupower frequency-set -g performance");
  expect(with_governors({"schedutil"}), "cpu.governor", Verdict::warn, "schedutil on 1 CPU", "cpupower");
}

TEST(Governor, ReadsGroupsOfCpus) {
  TestPatient machine;
  machine.file("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "ondemand\n");
  expect(machine, "cpu.governor", Verdict::warn, "ondemand on 1 group of CPUs", "cpupower");
}

TEST(Governor, DoesNotKnowWhatItCannotRead) {
  TestPatient machine = with_governors({"performance", "performance"});
  machine.unreadable("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
  expect(machine, "cpu.governor", Verdict::unknown, "governor of 1 CPU could not be read", "cpupower");
  expect(TestPatient(), "cpu.governor", Verdict::unknown, "does not say how", "cpupower");
}

TEST(Governor, SkipsAVirtualMachine) {
  TestPatient machine;
  machine.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme hypervisor sse\n");
  expect(machine, "cpu.governor", Verdict::skip, "virtual machine");
}

// ---- huge

TEST(Huge, TellsTheNumbers) {
  TestPatient machine;
  machine.file("/proc/meminfo",
               "MemTotal:  1000 kB\nHugePages_Total:     16\nHugePages_Free:       12\nHugepagesize:       2048 kB\n");
  machine.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  expect(machine, "huge", Verdict::pass, "12 of 16 reserved huge pages of 2048 kB are free; transparent huge pages: madvise");
}

TEST(Huge, DoesNotKnowWithoutNumbers) {
  TestPatient machine;
  machine.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  expect(machine, "huge", Verdict::unknown, "number of huge pages is not told", "meminfo");
  machine.file("/proc/meminfo", "HugePages_Total:     sixteen\nHugePages_Free:       12\n");
  expect(machine, "huge", Verdict::unknown, "number of huge pages is not told", "meminfo");
  machine.file("/proc/meminfo", "HugePages_Total:     16\nHugePages_Free:       12\n");
  machine.unreadable("/sys/kernel/mm/transparent_hugepage/enabled");
  expect(machine, "huge", Verdict::unknown, "transparent huge pages is not told", "CONFIG_TRANSPARENT_HUGEPAGE");
}

}  // namespace
}  // namespace gigabar
