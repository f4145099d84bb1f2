// SPDX-License-Identifier: Apache-2.0
// Checks of links and routes: pci.link, pci.bottleneck, pci.topo; and what all checks of PCI have in common.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "unit/doctor/pci_machines.hpp"

namespace gigabar::test {
namespace {

const std::vector<std::string> kChecks{"vm.detect",  "pci.link",    "pci.bottleneck", "pci.topo", "pci.acs",
                                       "iommu.mode", "iommu.group", "pci.mps",        "pci.ro",   "pci.vendorp2p"};

TEST(PciChecks, EachHasAWholePage) {
  std::set<std::string> ids;
  for (const CheckInfo& info : checks_of({"vm", "pci", "iommu"})) {
    ids.emplace(info.id);
    EXPECT_FALSE(info.is_probe) << info.id;
    for (const std::string_view part : {info.title, info.why, info.what, info.impact, info.confirm, info.remedy, info.source})
      EXPECT_GT(part.size(), 10U) << info.id;
  }
  EXPECT_EQ(ids, std::set<std::string>(kChecks.begin(), kChecks.end()));
}

TEST(PciChecks, SkipWhereThereIsNothing) {
  for (const std::string& check : kChecks) {
    if (check == "vm.detect") continue;
    const TestPatient patient;
    const auto findings = patient.run(check);
    ASSERT_EQ(findings.size(), 1U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::skip) << to_text(findings);
    EXPECT_FALSE(findings[0].statement.empty());
  }
}

TEST(PciChecks, AreUnknownWhereTheBusCannotBeListed) {
  TestPatient patient;
  patient.folder("/sys/bus/pci/devices").unreadable("/sys/bus/pci/devices");
  for (const std::string& check : kChecks) {
    if (check == "vm.detect") continue;
    expect(patient, check, Verdict::unknown, "/sys/bus/pci/devices cannot be read (permission denied)", "run as root");
    EXPECT_EQ(value_of(patient.run(check).at(0), "/sys/bus/pci/devices"), "permission denied") << check;
  }
}

TEST(PciChecks, AreUnknownWhereADeviceDoesNotSayWhatItIs) {
  TestPatient patient;
  patient.pci(kGpu, {}, 0);
  expect(patient, "pci.acs", Verdict::skip, "no GPU on PCI");
  const std::string path = "/sys/devices/pci0000:3d/" + kGpu + "/class";
  patient.unreadable(path, "Too many open files");
  expect(patient, "pci.acs", Verdict::unknown, kGpu + "/class cannot be read (Too many open files)", "ulimit -n");
}

TEST(PciChecks, SkipPairsOfASingleGpu) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kXeon).gpu(kGpu, {kRoot});
  for (const std::string check : {"pci.bottleneck", "pci.topo", "pci.acs", "pci.vendorp2p"}) {
    const auto findings = patient.run(check);
    ASSERT_EQ(findings.size(), 1U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::skip) << to_text(findings);
    EXPECT_TRUE(has(findings[0].statement, "one GPU and no RDMA NIC")) << to_text(findings);
  }
}

TEST(PciChecks, AreUnknownWhereRdmaDevicesCannotBeListed) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kXeon).gpu(kGpu, {kRoot});
  patient.folder("/sys/class/infiniband").unreadable("/sys/class/infiniband");
  for (const std::string check : {"pci.bottleneck", "pci.topo", "pci.acs", "pci.vendorp2p"})
    expect(patient, check, Verdict::unknown, "/sys/class/infiniband cannot be read (permission denied)", "run as root");
}

// What is not pass or skip says what to do; readings have a source.
TEST(PciChecks, EveryVerdictButPassHasARemedy) {
  TestPatient patient = one_switch();
  patient.remove("/proc/cpuinfo");
  for (const std::string& address : every_address()) {
    for (const char* name : {"current_link_width", "max_link_width"}) patient.pci_file(address, name, "Unknown\n");
  }
  node(patient, kGpu).link = {};
  for (const std::string& check : kChecks) {
    for (const Finding& finding : patient.run(check)) {
      const bool is_fine = finding.verdict == Verdict::pass || finding.verdict == Verdict::skip;
      EXPECT_EQ(finding.remedy.empty(), is_fine) << to_text({finding});
      EXPECT_EQ(finding.check, check);
      for (const Reading& reading : finding.readings) EXPECT_FALSE(reading.source.empty());
    }
  }
}

// pci.link ------------------------------------------------------------------------------------------------------------------------

TEST(PciLink, AllLinksAtFullWidthAreOneLine) {
  const auto findings = one_switch().run("pci.link");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::pass);
  for (const char* subject : {"GPU 0000:3d:00.0", "mlx5_0", "bridge 0000:3b:00.0"}) {
    EXPECT_TRUE(has(findings[0].subject, subject)) << findings[0].subject;
  }
  EXPECT_FALSE(has(findings[0].subject, kGpuPort)) << "a lower port of a switch has no link of its own upwards";
  EXPECT_FALSE(findings[0].readings.empty());
}

TEST(PciLink, LostLanesFail) {
  TestPatient patient = one_switch();
  give_link(patient, kGpu, 8);
  give_link(patient, kGpuPort, 8);
  const auto findings = patient.run("pci.link");
  ASSERT_EQ(findings.size(), 2U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::fail);
  EXPECT_EQ(findings[0].subject, "GPU 0000:3d:00.0");
  EXPECT_TRUE(has(findings[0].statement, "x8 of the x16")) << findings[0].statement;
  EXPECT_TRUE(has(findings[0].remedy, "reseat"));
  EXPECT_EQ(findings[1].verdict, Verdict::pass);
}

TEST(PciLink, LostLanesOfABridgeFail) {
  TestPatient patient = one_switch();
  give_link(patient, kUpper, 4);
  give_link(patient, kRoot, 4);
  const auto findings = patient.run("pci.link");
  ASSERT_EQ(count(findings, Verdict::fail), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].subject, "bridge 0000:3b:00.0");
}

TEST(PciLink, ANarrowSlotIsNoLoss) {
  TestPatient patient = one_switch();
  give_link(patient, kNic, 8, 16);
  give_link(patient, kNicPort, 8, 8);
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::pass);
}

TEST(PciLink, AnIdleGpuMayRunSlowly) {
  TestPatient patient = one_switch();
  give_link(patient, kGpu, 16, 16, "2.5");
  give_link(patient, kGpuPort, 16, 16, "2.5");
  const auto findings = patient.run("pci.link");
  ASSERT_EQ(findings.size(), 2U) << to_text(findings);
  EXPECT_EQ(count(findings, Verdict::pass), 2U);
  EXPECT_TRUE(has(to_text(findings), "2.5 of 32.0 GT/s: idle GPUs lower it, and probe.link reads it under load"));
}

TEST(PciLink, ASlowNicOrBridgeIsWarnedOf) {
  TestPatient patient = one_switch();
  give_link(patient, kNic, 16, 16, "16.0");
  give_link(patient, kNicPort, 16, 16, "16.0");
  auto findings = patient.run("pci.link");
  ASSERT_EQ(count(findings, Verdict::warn), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].subject, "mlx5_0");
  patient = one_switch();
  give_link(patient, kUpper, 16, 16, "8.0");
  give_link(patient, kRoot, 16, 16, "8.0");
  findings = patient.run("pci.link");
  ASSERT_EQ(count(findings, Verdict::warn), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].subject, "bridge 0000:3b:00.0");
  patient = one_switch();
  give_link(patient, kNic, 16, 16, "16.0", "16.0");
  give_link(patient, kNicPort, 16, 16, "16.0");
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::pass) << "a card of an older generation";
}

TEST(PciLink, ANicWithoutRdmaOnlyWarns) {
  TestPatient patient = one_switch();
  patient.topology.nics[0].rdma_device.clear();
  give_link(patient, kNic, 4);
  give_link(patient, kNicPort, 4);
  const auto findings = patient.run("pci.link");
  EXPECT_EQ(count(findings, Verdict::warn), 1U) << to_text(findings);
  EXPECT_EQ(count(findings, Verdict::fail), 0U) << to_text(findings);
}

TEST(PciLink, WhatIsNotToldIsUnknown) {
  TestPatient patient = one_switch();
  patient.pci_file(kGpu, "current_link_width", "0\n");
  EXPECT_EQ(count(patient.run("pci.link"), Verdict::unknown), 1U);
  patient.pci_file(kGpu, "current_link_width", "16\n").pci_file(kGpuPort, "max_link_width", "255\n");
  EXPECT_EQ(count(patient.run("pci.link"), Verdict::unknown), 1U);
  patient = one_switch();
  patient.pci_file(kGpuPort, "current_link_width", "8\n");
  EXPECT_EQ(count(patient.run("pci.link"), Verdict::unknown), 1U) << "the two ends contradict each other";
  patient = one_switch();
  patient.pci_file(kNic, "current_link_speed", "Unknown\n");
  EXPECT_EQ(count(patient.run("pci.link"), Verdict::unknown), 1U);
  TestPatient bare;
  bare.gpu(kGpu, {kRoot});
  const auto findings = bare.run("pci.link");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::unknown) << "no files at all";
  EXPECT_EQ(findings[0].readings.at(0).value, "missing");
}

TEST(PciLink, AnEmulatedNicHasNone) {
  TestPatient patient;
  patient.nic("eth0", "0000:00:03.0");
  patient.topology.nics[0].rdma_device.clear();
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::skip);
  patient.topology.nics[0].rdma_device = "mlx5_0";
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::unknown) << "of one that matters somebody should look";
}

TEST(PciLink, ADeviceWithoutAPortAbove) {
  TestPatient patient;
  patient.gpu("0000:00:05.0");
  give_link(patient, "0000:00:05.0");
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::pass);
  give_link(patient, "0000:00:05.0", 8);
  EXPECT_EQ(patient.verdict("pci.link"), Verdict::unknown) << "the slot may have no more lanes";
}

TEST(PciLink, AVirtualFunctionHasItsPhysicalOnesLink) {
  TestPatient patient = one_switch();
  patient.nic("mlx5_2", "0000:3e:00.2", {kRoot, kUpper, kNicPort});
  patient.link("/sys/devices/pci0000:3a/" + kRoot + "/" + kUpper + "/" + kNicPort + "/0000:3e:00.2/physfn", "../" + kNic);
  const auto findings = patient.run("pci.link");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::pass);
}

TEST(PciLink, FindingsAreBounded) {
  TestPatient patient;
  constexpr unsigned kNics = 200;
  for (unsigned i = 0; i < kNics; ++i) {
    char root[32], device[32];
    std::snprintf(root, sizeof root, "0000:00:%02x.%x", i / 8, i % 8);
    std::snprintf(device, sizeof device, "0000:%02x:00.0", i + 1);
    patient.nic("mlx5_" + std::to_string(i), device, {root});
    give_link(patient, device, 16, 16, std::to_string(i + 1) + ".0", "400.0");
    give_link(patient, root, 16, 16, std::to_string(i + 1) + ".0", "400.0");
  }
  const auto findings = patient.run("pci.link");
  ASSERT_EQ(findings.size(), 64U);
  EXPECT_EQ(count(findings, Verdict::warn), 64U) << "what is left out counts as what it is";
  EXPECT_TRUE(has(findings.back().statement, std::to_string(kNics - 63) + " more findings")) << findings.back().statement;
}

// pci.bottleneck ------------------------------------------------------------------------------------------------------------------

TEST(PciBottleneck, LinksThatCarryThePort) { EXPECT_EQ(one_switch().verdict("pci.bottleneck"), Verdict::pass); }

TEST(PciBottleneck, NamesTheNarrowHop) {
  TestPatient patient = one_switch();
  give_link(patient, kGpu, 8);
  give_link(patient, kGpuPort, 8);
  const auto findings = patient.run("pci.bottleneck");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "PCIe 5.0 x8 at 0000:3d:00.0 carries 31.5 GB/s each way, less than the 50.0 GB/s"))
      << findings[0].statement;
}

TEST(PciBottleneck, UnknownWithoutRatesOrLinks) {
  TestPatient patient = one_switch();
  give_port(patient, "mlx5_0", 0, "DOWN");
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::unknown);
  patient = two_roots();
  node(patient, kGpu).link = {};
  node(patient, kRoot).link = {};
  node(patient, kNic).link = {};
  node(patient, kFarRoot).link = {};
  patient.topology.nics[0].ports.clear();
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::unknown);
}

TEST(PciBottleneck, BetweenGpusOnlyWhatIsNarrowerThanTheirOwnLinks) {
  TestPatient patient;
  const std::vector<std::string> first{"0000:10:01.0"}, second{"0000:20:01.0"};
  patient.gpu("0000:11:00.0", first);
  patient.gpu("0000:21:00.0", second);
  for (const char* address : {"0000:10:01.0", "0000:20:01.0", "0000:11:00.0", "0000:21:00.0"}) give_link(patient, address);
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::pass);

  TestPatient uplink;
  uplink.gpu("0000:13:00.0", {"0000:10:01.0", "0000:11:00.0", "0000:12:00.0"});
  uplink.gpu("0000:21:00.0", second);
  for (const char* address : {"0000:12:00.0", "0000:13:00.0", "0000:20:01.0", "0000:21:00.0"}) give_link(uplink, address);
  give_link(uplink, "0000:10:01.0", 8);
  give_link(uplink, "0000:11:00.0", 8);
  const auto findings = uplink.run("pci.bottleneck");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "PCIe 5.0 x8 at 0000:11:00.0")) << findings[0].statement;
  uplink.topology.nvlinks.push_back({0, 1, 18, 450, true});
  EXPECT_EQ(uplink.verdict("pci.bottleneck"), Verdict::skip) << "NVLink does not cross it";
}

TEST(PciBottleneck, ACoherentGpusOwnLinkDoesNotCount) {
  TestPatient patient = two_roots(kArm);
  patient.topology.numa_nodes = {{0, 0, {0, 1}, 1 << 30}};
  patient.topology.gpus[0].is_coherent = true;
  give_link(patient, kGpu, 1, 1);
  give_link(patient, kRoot, 1, 1);
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::pass);
  give_link(patient, kNic, 4);
  give_link(patient, kFarRoot, 4);
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::warn) << "the NIC's does";
  patient.topology.gpus[0].is_coherent = false;
  give_link(patient, kNic);
  give_link(patient, kFarRoot);
  EXPECT_EQ(patient.verdict("pci.bottleneck"), Verdict::warn);
}

// pci.topo ------------------------------------------------------------------------------------------------------------------------

TEST(PciTopo, OneSwitchPasses) {
  const auto findings = one_switch().run("pci.topo");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::pass);
  EXPECT_EQ(findings[0].subject, "GPU 0000:3d:00.0 and mlx5_0");
  EXPECT_TRUE(has(findings[0].readings.at(0).value, "PIX")) << findings[0].readings.at(0).value;
}

TEST(PciTopo, ThroughTheRootComplexWarns) {
  const auto findings = two_roots().run("pci.topo");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "through the CPU's root complex (NODE)")) << findings[0].statement;
}

TEST(PciTopo, AcrossNodesWarnsOfTheRate) {
  const auto findings = two_roots(kXeon, 1).run("pci.topo");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "a half to a third")) << findings[0].statement;
}

TEST(PciTopo, NodesThatAreNotToldAreUnknown) {
  TestPatient patient = two_roots();
  patient.topology.gpus[0].numa_node = -1;
  patient.topology.nics[0].numa_node = -1;
  EXPECT_EQ(patient.verdict("pci.topo"), Verdict::unknown);
}

TEST(PciTopo, CoherentGpusAreReachedThroughTheirCpu) {
  TestPatient patient = two_roots(kArm);
  patient.topology.gpus[0].is_coherent = true;
  EXPECT_EQ(patient.verdict("pci.topo"), Verdict::pass);
  patient = two_roots(kArm, 1);
  patient.topology.gpus[0].is_coherent = true;
  EXPECT_EQ(patient.verdict("pci.topo"), Verdict::warn) << "another socket is far for everybody";
}

TEST(PciTopo, AnotherNodeOfTheSamePackageIsSaidSo) {
  TestPatient patient = two_roots(kEpyc, 1);
  patient.topology.numa_nodes = {{0, 0, {0, 1}, 1 << 30}, {1, 0, {2, 3}, 1 << 30}};
  auto findings = patient.run("pci.topo");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "of the same CPU")) << findings[0].statement;
  patient.topology.numa_nodes[1].package = 1;
  findings = patient.run("pci.topo");
  EXPECT_TRUE(has(findings.at(0).statement, "a half to a third")) << findings[0].statement;
}

TEST(PciTopo, AVirtualMachineCannotTell) {
  TestPatient patient = one_switch(kVirtualXeon);
  EXPECT_EQ(patient.verdict("pci.topo"), Verdict::unknown) << "even below one switch: it is emulated";
  patient.gpu("0000:4d:00.0", {"0000:4a:01.0"});
  patient.topology.nvlinks.push_back({0, 1, 18, 450, true});
  EXPECT_EQ(count(patient.run("pci.topo"), Verdict::pass), 1U) << "NVLinks are real";
}

TEST(PciTopo, EightGpusAndEightNicsAreFewLines) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kTwoXeons);
  for (unsigned i = 0; i < 8; ++i) {
    const std::string bus = std::to_string(10 + 10 * i), next = std::to_string(11 + 10 * i);
    const std::string root = "0000:" + bus + ":01.0", upper = "0000:" + next + ":00.0";
    const std::string low = std::to_string(12 + 10 * i);
    patient.gpu("0000:" + std::to_string(13 + 10 * i) + ":00.0", {root, upper, "0000:" + low + ":00.0"}, i < 4 ? 0 : 1);
    patient.nic("mlx5_" + std::to_string(i), "0000:" + std::to_string(14 + 10 * i) + ":00.0",
                {root, upper, "0000:" + low + ":01.0"}, i < 4 ? 0 : 1);
  }
  for (int first = 0; first < 8; ++first) {
    for (int second = first + 1; second < 8; ++second) patient.topology.nvlinks.push_back({first, second, 18, 450, true});
  }
  const auto findings = patient.run("pci.topo");
  EXPECT_LE(findings.size(), 3U) << to_text(findings);
  EXPECT_EQ(count(findings, Verdict::pass), findings.size());
  EXPECT_TRUE(has(findings[0].subject + findings.back().subject, "more")) << to_text(findings);
  EXPECT_TRUE(has(to_text(findings), "mlx5_7")) << to_text(findings);
}

}  // namespace
}  // namespace gigabar::test
