// SPDX-License-Identifier: Apache-2.0
// Checks over configuration space: pci.acs, pci.mps, pci.ro; and pci.vendorp2p.
#include <gtest/gtest.h>

#include <set>

#include "unit/doctor/pci_machines.hpp"

namespace gigabar::test {
namespace {

constexpr unsigned kRootPort = 4, kUpperPort = 5, kLowerPort = 6, kEndpoint = 0;
constexpr std::uint16_t kRedirects = 0x1d, kDirect = 0x00;

ConfigSpace lower_port(std::uint16_t acs) { return ConfigSpace(0x1000).express(kLowerPort).acs(acs); }

// Everything as it should be: nothing redirects, payloads of 256 bytes, reads of 4096, relaxed ordering.
TestPatient sound(const std::string& cpu = kXeon) {
  TestPatient patient = one_switch(cpu);
  give_config(patient, kRoot, ConfigSpace(0x8086).express(kRootPort).acs(0));
  give_config(patient, kUpper, ConfigSpace(0x1000).express(kUpperPort));
  give_config(patient, kGpuPort, lower_port(kDirect));
  give_config(patient, kNicPort, lower_port(kDirect));
  give_config(patient, kGpu, ConfigSpace().express(kEndpoint));
  give_config(patient, kNic, ConfigSpace(0x15b3).express(kEndpoint));
  return patient;
}

// pci.acs -------------------------------------------------------------------------------------------------------------------------

TEST(PciAcs, PortsThatDoNotRedirectPass) {
  const auto findings = sound().run("pci.acs");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::pass);
  EXPECT_EQ(findings[0].subject, "port 0000:3c:00.0, port 0000:3c:01.0");
}

TEST(PciAcs, ARedirectingPortFails) {
  for (const std::uint16_t control : {std::uint16_t{0x04}, std::uint16_t{0x08}, kRedirects}) {
    TestPatient patient = sound();
    give_config(patient, kNicPort, lower_port(control));
    const auto findings = patient.run("pci.acs");
    ASSERT_EQ(findings.size(), 2U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::fail) << control;
    EXPECT_EQ(findings[0].subject, "port 0000:3c:01.0");
    EXPECT_TRUE(has(findings[0].remedy, "setpci -s 0000:3c:01.0 ECAP_ACS+6.w=0")) << findings[0].remedy;
    EXPECT_TRUE(has(findings[0].remedy, "config_acs=00xx@0000:3c:01.0")) << findings[0].remedy;
    EXPECT_TRUE(has(findings[0].statement, "GPU 0000:3d:00.0 and mlx5_0")) << findings[0].statement;
    EXPECT_EQ(findings[1].verdict, Verdict::pass);
  }
}

TEST(PciAcs, OtherBitsDoNotMatterNorDoesTheRootPort) {
  TestPatient patient = sound();
  give_config(patient, kNicPort, lower_port(0x51));
  give_config(patient, kRoot, ConfigSpace(0x8086).express(kRootPort).acs(kRedirects));
  EXPECT_EQ(patient.verdict("pci.acs"), Verdict::pass);
}

TEST(PciAcs, APortWithoutTheCapabilityPasses) {
  TestPatient patient = sound();
  give_config(patient, kNicPort, ConfigSpace(0x1000).express(kLowerPort));
  EXPECT_EQ(patient.verdict("pci.acs"), Verdict::pass);
}

TEST(PciAcs, WithoutRightsItIsUnknown) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{256}, std::size_t{0x104}}) {
    TestPatient patient = sound();
    give_config(patient, kGpuPort, lower_port(kRedirects), bytes);
    give_config(patient, kNicPort, lower_port(kRedirects), bytes);
    const auto findings = patient.run("pci.acs");
    ASSERT_EQ(findings.size(), 1U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::unknown) << bytes;
    EXPECT_TRUE(has(findings[0].remedy, "run as root")) << findings[0].remedy;
  }
}

TEST(PciAcs, MissingDamagedOrGoneIsUnknown) {
  TestPatient patient = sound();
  patient.pci_file(kNicPort, "config", std::string(4096, '\xff'));
  const auto gone = patient.run("pci.acs");
  ASSERT_EQ(count(gone, Verdict::unknown), 1U) << to_text(gone);
  EXPECT_TRUE(has(gone[0].readings.at(0).value, "does not answer")) << gone[0].readings.at(0).value;
  patient.pci_file(kNicPort, "config", "short");
  EXPECT_EQ(count(patient.run("pci.acs"), Verdict::unknown), 1U);
  EXPECT_EQ(one_switch().verdict("pci.acs"), Verdict::unknown) << "no file at all";
  const std::string path = "/sys/devices/pci0000:3a/" + kRoot + "/" + kUpper + "/" + kNicPort + "/config";
  patient.unreadable(path);
  const auto findings = patient.run("pci.acs");
  ASSERT_EQ(count(findings, Verdict::unknown), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].readings.at(0).value, "permission denied");
}

TEST(PciAcs, NoCommonSwitchIsSkipped) {
  EXPECT_EQ(two_roots().verdict("pci.acs"), Verdict::skip);
  TestPatient functions;
  functions.file("/proc/cpuinfo", kXeon);
  functions.gpu("0000:3d:00.0", {kRoot});
  functions.nic("mlx5_0", "0000:3d:00.1", {kRoot});
  EXPECT_EQ(functions.verdict("pci.acs"), Verdict::skip) << "two functions of one card below a root port";
}

TEST(PciAcs, TwoSwitchesOfOneCardMeetAtTheRootPort) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kXeon);
  patient.gpu(kGpu, {kRoot, kUpper, kGpuPort});
  patient.nic("mlx5_0", kNic, {kRoot, "0000:3b:00.1", "0000:3f:00.0"});
  give_config(patient, kGpuPort, lower_port(kRedirects));
  give_config(patient, "0000:3f:00.0", lower_port(kRedirects));
  EXPECT_EQ(patient.verdict("pci.acs"), Verdict::skip) << "their traffic goes up to the root port in any case";
}

TEST(PciAcs, InAVirtualMachineTheRuleIsInverted) {
  TestPatient patient = sound(kVirtualXeon);
  give_config(patient, kNicPort, lower_port(kRedirects));
  const auto findings = patient.run("pci.acs");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::skip);
  EXPECT_TRUE(has(findings[0].statement, "inverted")) << findings[0].statement;
}

TEST(PciAcs, OnlyAWarningWhereTheKindOfMachineIsNotTold) {
  TestPatient patient = sound();
  patient.remove("/proc/cpuinfo");
  give_config(patient, kNicPort, lower_port(kRedirects));
  EXPECT_EQ(count(patient.run("pci.acs"), Verdict::warn), 1U);
}

TEST(PciAcs, CoherentGpusHaveARuleOfTheirOwn) {
  TestPatient patient = sound(kArm);
  patient.topology.gpus[0].is_coherent = true;
  give_config(patient, kNicPort, lower_port(kRedirects));
  const auto findings = patient.run("pci.acs");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::skip);
  EXPECT_TRUE(has(findings[0].statement, "iommu.group"));
}

TEST(PciAcs, ASwitchBelowASwitchCountsEachPortOnce) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kXeon);
  const std::string low = "0000:11:00.0", middle = "0000:12:00.0", far = "0000:13:00.0";
  patient.gpu("0000:14:00.0", {kRoot, kUpper, low, middle, far});
  patient.gpu("0000:15:00.0", {kRoot, kUpper, low, middle, "0000:13:01.0"});
  patient.nic("mlx5_0", kNic, {kRoot, kUpper, kNicPort});
  for (const std::string& port : {low, far, std::string("0000:13:01.0"), kNicPort}) give_config(patient, port, lower_port(kDirect));
  give_config(patient, middle, ConfigSpace(0x1000).express(kUpperPort));
  give_config(patient, low, lower_port(kRedirects));
  const auto findings = patient.run("pci.acs");
  ASSERT_EQ(findings.size(), 2U) << to_text(findings);
  EXPECT_EQ(findings[0].subject, "port 0000:11:00.0");
  EXPECT_TRUE(has(findings[0].statement, "and of another pair")) << findings[0].statement;
}

// pci.mps -------------------------------------------------------------------------------------------------------------------------

TEST(PciMps, EqualPayloadsAndLargeReadsPass) {
  const auto findings = sound().run("pci.mps");
  EXPECT_EQ(count(findings, Verdict::pass), findings.size()) << to_text(findings);
  EXPECT_TRUE(has(to_text(findings), "payloads of up to 256 bytes")) << to_text(findings);
  EXPECT_TRUE(has(to_text(findings), "reads up to 4096 bytes")) << to_text(findings);
}

TEST(PciMps, WhatSeveralDevicesShareIsReadOnceAndSaidOnce) {
  std::set<std::string> sources;
  const auto findings = sound().run("pci.mps");
  const auto& readings = findings.at(0).readings;
  for (const Reading& reading : readings) sources.insert(reading.source);
  EXPECT_EQ(sources.size(), 6U) << "a GPU, a NIC and the four ports above";
  EXPECT_EQ(readings.size(), 6U);
}

TEST(PciMps, UnequalPayloadsWarn) {
  TestPatient patient = sound();
  give_config(patient, kGpuPort, ConfigSpace(0x1000).express(kLowerPort, 0x5050).acs(0));
  const auto findings = patient.run("pci.mps");
  ASSERT_EQ(count(findings, Verdict::warn), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].subject, "GPU 0000:3d:00.0");
  EXPECT_TRUE(has(findings[0].statement, "0000:3c:00.0 512 bytes")) << findings[0].statement;
  EXPECT_TRUE(findings[0].needs_reboot);
}

TEST(PciMps, SmallReadsOfTheNicWarn) {
  TestPatient patient = sound();
  give_config(patient, kNic, ConfigSpace(0x15b3).express(kEndpoint, 0x2030));
  give_config(patient, kGpu, ConfigSpace().express(kEndpoint, 0x2030));
  const auto findings = patient.run("pci.mps");
  ASSERT_EQ(count(findings, Verdict::warn), 1U) << "of the NIC only: " << to_text(findings);
  EXPECT_EQ(findings[0].subject, "mlx5_0");
  EXPECT_TRUE(has(findings[0].remedy, "setpci -s 0000:3e:00.0 CAP_EXP+8.w=5000:7000")) << findings[0].remedy;
}

TEST(PciMps, WithoutRightsItIsUnknown) {
  TestPatient patient = sound();
  for (const std::string& address : every_address()) give_config(patient, address, ConfigSpace().express(), 64);
  const auto findings = patient.run("pci.mps");
  EXPECT_EQ(count(findings, Verdict::unknown), findings.size()) << to_text(findings);
  EXPECT_TRUE(has(findings[0].remedy, "run as root"));
  patient = one_switch();
  EXPECT_EQ(count(patient.run("pci.mps"), Verdict::pass), 0U);
}

TEST(PciMps, EmulatedPortsAboveAreNotCompared) {
  TestPatient patient = sound(kVirtualXeon);
  give_config(patient, kRoot, ConfigSpace(0x1b36).express(kRootPort, 0x0000));
  EXPECT_EQ(patient.verdict("pci.mps"), Verdict::pass);
}

// pci.ro --------------------------------------------------------------------------------------------------------------------------

TestPatient ordered(const std::string& cpu) {
  TestPatient patient = sound(cpu);
  give_config(patient, kNic, ConfigSpace(0x15b3).express(kEndpoint, 0x5020));
  return patient;
}

TEST(PciRo, EnabledPasses) { EXPECT_EQ(sound(kEpyc).verdict("pci.ro"), Verdict::pass); }

TEST(PciRo, OffWarnsWhereItCosts) {
  for (const std::string& cpu : {kEpyc, kTwoXeons}) {
    const auto findings = ordered(cpu).run("pci.ro");
    ASSERT_EQ(findings.size(), 2U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::warn);
    EXPECT_EQ(findings[0].subject, "mlx5_0");
    EXPECT_TRUE(has(findings[0].remedy, "setpci -s 0000:3e:00.0 CAP_EXP+8.w=10:10")) << findings[0].remedy;
  }
}

TEST(PciRo, OffPassesWhereItDoesNot) {
  for (const std::string& cpu : {kXeon, kCore, kArm, cpu_of("AuthenticAMD", "AMD Ryzen 9 7950X")}) {
    const auto findings = ordered(cpu).run("pci.ro");
    EXPECT_EQ(count(findings, Verdict::pass), findings.size()) << to_text(findings);
  }
}

TEST(PciRo, UnknownWithoutRightsOrCpu) {
  TestPatient patient = ordered(kEpyc);
  patient.remove("/proc/cpuinfo");
  EXPECT_EQ(count(patient.run("pci.ro"), Verdict::unknown), 1U);
  give_config(patient, kNic, ConfigSpace().express(), 64);
  give_config(patient, kGpu, ConfigSpace().express(), 64);
  EXPECT_EQ(patient.verdict("pci.ro"), Verdict::unknown);
  EXPECT_EQ(one_switch().verdict("pci.ro"), Verdict::unknown) << "no file at all";
}

// pci.vendorp2p -------------------------------------------------------------------------------------------------------------------

TEST(PciVendorP2p, RootPortsOfAClientCpuWarn) {
  const auto findings = two_roots(kCore).run("pci.vendorp2p");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_EQ(findings[0].subject, "GPU 0000:3d:00.0 and mlx5_0");
}

TEST(PciVendorP2p, OneRootPortOrAnotherCpuPasses) {
  EXPECT_EQ(one_switch(kCore).verdict("pci.vendorp2p"), Verdict::pass);
  for (const std::string& cpu : {kXeon, kEpyc, kArm}) EXPECT_EQ(two_roots(cpu).verdict("pci.vendorp2p"), Verdict::pass) << cpu;
}

TEST(PciVendorP2p, TwoGpusToo) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kCore);
  patient.gpu("0000:01:00.0", {"0000:00:01.0"});
  patient.gpu("0000:02:00.0", {"0000:00:01.1"});
  EXPECT_EQ(patient.verdict("pci.vendorp2p"), Verdict::warn);
  patient.topology.nvlinks.push_back({0, 1, 4, 56.25, false});
  EXPECT_EQ(patient.verdict("pci.vendorp2p"), Verdict::skip);
}

TEST(PciVendorP2p, UnknownWithoutTheCpusName) {
  TestPatient patient = two_roots();
  patient.remove("/proc/cpuinfo");
  EXPECT_EQ(patient.verdict("pci.vendorp2p"), Verdict::unknown);
  patient.unreadable("/proc/cpuinfo");
  EXPECT_EQ(patient.verdict("pci.vendorp2p"), Verdict::unknown);
  EXPECT_EQ(two_roots(cpu_of("GenuineIntel", "Genuine Intel(R) 0000")).verdict("pci.vendorp2p"), Verdict::unknown);
}

TEST(PciVendorP2p, VirtualRootPortsAreNoRootPorts) { EXPECT_EQ(two_roots(kVirtualXeon).verdict("pci.vendorp2p"), Verdict::skip); }

}  // namespace
}  // namespace gigabar::test
