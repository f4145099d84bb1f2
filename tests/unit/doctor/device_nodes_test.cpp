// SPDX-License-Identifier: Apache-2.0
// Device nodes that are there and do not work: what each check says of every node in its place, with every fault.
#include "doctor/facts.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "unit/doctor/driver_machine.hpp"

namespace gigabar::test {
namespace {

constexpr const char* kProcDevices =
    "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n195 nvidiactl\n226 drm\n231 infiniband_verbs\n236 gdrdrv\n237 nvidia-caps\n"
    "498 nvidia-caps-imex-channels\n509 nvidia-uvm\n\nBlock devices:\n259 blkext\n";

struct Node {
  const char* path;
  std::uint32_t major, minor;
  const char* check;    // that looks at it
  const char* subject;  // of its finding when the node is broken
  Verdict verdict;      // when the node is broken
};
constexpr Node kNodes[] = {
    {"/dev/nvidiactl", 195, 255, "drv.loaded", "/dev/nvidiactl", Verdict::fail},
    {"/dev/nvidia0", 195, 0, "drv.loaded", "/dev/nvidia0", Verdict::fail},
    {"/dev/nvidia-uvm", 509, 0, "drv.loaded", "/dev/nvidia-uvm", Verdict::fail},
    {"/dev/nvidia-caps/nvidia-cap1", 237, 1, "drv.loaded", "/dev/nvidia-caps/nvidia-cap1", Verdict::warn},
    {"/dev/gdrdrv", 236, 0, "mod.gdrdrv", "", Verdict::warn},
    {"/dev/nvidia-caps-imex-channels/channel0", 498, 0, "imex", "", Verdict::fail},
    {"/dev/infiniband/uverbs0", 231, 192, "rdma.dev", "mlx5_0", Verdict::fail},
    {"/dev/infiniband/rdma_cm", 10, 124, "rdma.dev", "rdma_cm", Verdict::fail},
};

TestPatient machine_with_all_nodes() {
  TestPatient machine = machine_with_rdma();
  machine.file("/proc/devices", kProcDevices).file("/proc/misc", "183 hw_random\n124 rdma_cm\n");
  machine.file("/sys/module/gdrdrv/version", "2.5\n");
  machine.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n")
      .file("/sys/class/infiniband_verbs/uverbs0/dev", "231:192\n");
  machine.answers.rdma_devices = {{"mlx5_0", {}, {}}};
  for (const Node& node : kNodes) machine.device(node.path, true, true, node.major, node.minor).opened(node.path, 0);
  return machine;
}

void expect_broken(const TestPatient& machine, const Node& node, std::string_view statement, std::string_view remedy) {
  const Finding finding = of_subject(machine.run(node.check), node.subject);
  expect_finding(finding, node.verdict, statement, remedy);
  EXPECT_NE(finding.statement.find(node.path), std::string::npos) << to_text({finding});
  EXPECT_TRUE(has_reading(finding, node.path, "") || !finding.readings.empty());
}

TEST(DeviceNodesOfChecks, PassWhenTheyWork) {
  const TestPatient machine = machine_with_all_nodes();
  for (const Node& node : kNodes) EXPECT_EQ(machine.verdict(node.check), Verdict::pass) << node.path;
  EXPECT_TRUE(has_reading(only_finding(machine, "mod.gdrdrv"), "/dev/gdrdrv",
                          "character device 236:0, readable and writable, open() succeeds"));
}

TEST(DeviceNodesOfChecks, AFolderInTheirPlace) {
  for (const Node& node : kNodes) {
    TestPatient machine = machine_with_all_nodes();
    machine.remove(node.path).folder(node.path);
    expect_broken(machine, node, "is a folder, not a device", std::string("sudo rmdir ") + node.path);
    expect_broken(
        machine, node, "is a folder, not a device",
        std::string("sudo mknod -m 666 ") + node.path + " c " + std::to_string(node.major) + " " + std::to_string(node.minor));
    machine.file("/.dockerenv", "");
    expect_broken(machine, node, "is a folder, not a device", "remove the mount");
  }
}

TEST(DeviceNodesOfChecks, ARegularFileInTheirPlace) {
  for (const Node& node : kNodes) {
    TestPatient machine = machine_with_all_nodes();
    machine.remove(node.path).file(node.path, "");
    expect_broken(machine, node, "is a regular file, not a device", std::string("sudo rm ") + node.path);
  }
}

TEST(DeviceNodesOfChecks, ANumberThatIsNotTheirDrivers) {
  for (const Node& node : kNodes) {
    TestPatient machine = machine_with_all_nodes();
    machine.device(node.path, true, true, 226, node.minor);
    expect_broken(machine, node, "opening it reaches a device of drm",
                  std::string("sudo rm ") + node.path + "; then sudo mknod -m 666");
    machine.device(node.path, true, true, 242, node.minor);
    expect_broken(machine, node, "opening it reaches no device", "mknod");
    machine.device(node.path, true, true, node.major, node.minor + 7);
    expect_broken(machine, node, "another device of that driver or none", "mknod");
    machine.file("/.dockerenv", "");
    expect_broken(machine, node, "is stale", "start it again");
  }
}

TEST(DeviceNodesOfChecks, WhatOpenRefuses) {
  for (const Node& node : kNodes) {
    TestPatient machine = machine_with_all_nodes();
    machine.opened(node.path, EPERM);
    expect_broken(machine, node, "cannot be opened (EPERM)", "DeviceAllow");
    machine.file("/.dockerenv", "");
    expect_broken(machine, node, "a device cgroup", "--device");
    machine.remove("/.dockerenv").opened(node.path, ENXIO);
    expect_broken(machine, node, "ENXIO", "load the driver's module");
    machine.opened(node.path, EIO);
    expect_broken(machine, node, "EIO", "dmesg");
  }
}

TEST(DeviceNodesOfChecks, ADriverThatTheKernelDoesNotListHasNoNode) {
  TestPatient machine = machine_with_all_nodes();
  machine.file("/proc/devices", "Character devices:\n195 nvidia\n236 drm\n509 nvidia-uvm\n");
  const Finding finding = only_finding(machine, "mod.gdrdrv");
  expect_finding(finding, Verdict::warn,
                 "the number 236:0, but the kernel lists no device of gdrdrv, so that opening it reaches a device of drm",
                 "load the driver");
}

TEST(DeviceNodesOfChecks, EveryBrokenNodeOfTheDriverIsNamed) {
  TestPatient machine = machine_with_all_nodes();
  machine.device("/dev/nvidiactl", true, true, 194, 255).opened("/dev/nvidia-uvm", EPERM);
  const std::vector<Finding> findings = machine.run("drv.loaded");
  ASSERT_EQ(findings.size(), 2u) << to_text(findings);
  EXPECT_EQ(of_subject(findings, "/dev/nvidiactl").verdict, Verdict::fail);
  EXPECT_EQ(of_subject(findings, "/dev/nvidia-uvm").verdict, Verdict::fail);
}

TEST(DeviceNodesOfChecks, CapabilitiesCountWhenInstancesNeedThem) {
  TestPatient machine = machine_with_all_nodes();
  machine.answers.gpus.at(0).is_mig_enabled = true;
  machine.device("/dev/nvidia-caps/nvidia-cap1", true, true, 236, 1);
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "is stale", "mknod");
  TestPatient other = machine_with_driver();
  other.file("/dev/nvidia-caps", "");
  expect_finding(only_finding(other, "drv.loaded"), Verdict::warn, "/dev/nvidia-caps is not the folder",
                 "sudo rm /dev/nvidia-caps");
}

TEST(DeviceNodesOfChecks, EachGpuOfTheDriverHasANode) {
  TestPatient machine = machine_with_driver();
  machine.gpu(kOtherGpu, {"0000:5d:00.0"});
  machine.file(std::string("/proc/driver/nvidia/gpus/") + kOtherGpu + "/information", "Device Minor: \t 1\n");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "nodes are missing: /dev/nvidia1", "nvidia-modprobe");
  machine.file("/.dockerenv", "");
  EXPECT_EQ(machine.verdict("drv.loaded"), Verdict::pass) << "a container is given some of them";
  machine.remove("/.dockerenv").device("/dev/nvidia1", true, true, 195, 1);
  EXPECT_EQ(machine.verdict("drv.loaded"), Verdict::pass);
}

// What is not told does not count: captures of before, trees that were copied by hand.
TEST(DeviceNodesOfChecks, PassWhereNothingIsKnownOfTheDriver) {
  TestPatient machine = machine_with_all_nodes();
  machine.remove("/proc/devices").remove("/proc/misc").remove("/sys/class/infiniband_verbs/uverbs0/dev");
  for (const char* check : {"drv.loaded", "mod.gdrdrv", "rdma.dev"}) EXPECT_EQ(machine.verdict(check), Verdict::pass) << check;
}

TEST(DeviceNodesOfChecks, ConnectionsByAddressNeedTheirNode) {
  TestPatient machine = machine_with_all_nodes();
  machine.remove("/dev/infiniband/rdma_cm");
  expect_finding(finding_of(machine, "rdma.dev", "rdma_cm"), Verdict::warn, "rdma_cm is missing", "modprobe rdma_ucm");
  machine.file("/.dockerenv", "");
  expect_finding(finding_of(machine, "rdma.dev", "rdma_cm"), Verdict::warn, "missing in a Docker container", "--device");
  machine.remove("/dev/infiniband/uverbs0");
  EXPECT_EQ(machine.run("rdma.dev").size(), 1u) << "the adapter's own node comes first";
}

}  // namespace
}  // namespace gigabar::test
