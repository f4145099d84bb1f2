// SPDX-License-Identifier: Apache-2.0
// iommu.mode, iommu.group and vm.detect.
#include <gtest/gtest.h>

#include "unit/doctor/pci_machines.hpp"

namespace gigabar::test {
namespace {

std::string device_path(const std::string& address, const std::vector<std::string>& parents) {
  std::string path = "/sys/devices/pci" + parents.front().substr(0, 7);
  for (const std::string& parent : parents) path += "/" + parent;
  return path + "/" + address;
}

void give_group(TestPatient& patient, const std::string& device, int number, const std::string& type) {
  const std::string group = "/sys/kernel/iommu_groups/" + std::to_string(number);
  patient.folder("/sys/class/iommu/dmar0").folder(group).file(group + "/type", type + "\n");
  patient.link(device + "/iommu_group", group);
}

TestPatient with_iommu(const std::string& type, const std::string& cpu = kXeon, const std::string& command_line = "quiet") {
  TestPatient patient = one_switch(cpu);
  patient.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1234 " + command_line + " secret=word\n");
  give_group(patient, device_path(kGpu, {kRoot, kUpper, kGpuPort}), 12, type);
  give_group(patient, device_path(kNic, {kRoot, kUpper, kNicPort}), 13, type);
  return patient;
}

// iommu.mode ----------------------------------------------------------------------------------------------------------------------

TEST(IommuMode, IdentityPasses) {
  const auto findings = with_iommu("identity").run("iommu.mode");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::pass);
  EXPECT_EQ(findings[0].subject, "GPU 0000:3d:00.0, mlx5_0");
}

TEST(IommuMode, TranslationFails) {
  for (const char* type : {"DMA", "DMA-FQ"}) {
    const auto findings = with_iommu(type, kXeon, "intel_iommu=on").run("iommu.mode");
    ASSERT_EQ(findings.size(), 1U) << to_text(findings);
    EXPECT_EQ(findings[0].verdict, Verdict::fail);
    EXPECT_TRUE(findings[0].needs_reboot);
    EXPECT_TRUE(has(findings[0].remedy, "iommu=pt")) << findings[0].remedy;
    std::string words;
    for (const Reading& reading : findings[0].readings) {
      if (reading.source == "/proc/cmdline") words = reading.value;
    }
    EXPECT_EQ(words, "intel_iommu=on") << "no other word of the command line is shown";
  }
}

TEST(IommuMode, TranslationAlthoughPassThroughWasAskedFor) {
  const auto findings = with_iommu("DMA", kEpyc, "amd_iommu=on iommu=pt").run("iommu.mode");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::fail);
  EXPECT_TRUE(has(findings[0].remedy, "iommu=pt is set")) << findings[0].remedy;
}

TEST(IommuMode, OnlyOneDeviceIsTranslated) {
  TestPatient patient = with_iommu("identity");
  patient.file("/sys/kernel/iommu_groups/13/type", "DMA-FQ\n");
  const auto findings = patient.run("iommu.mode");
  ASSERT_EQ(findings.size(), 2U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::fail);
  EXPECT_EQ(findings[0].subject, "mlx5_0");
}

TEST(IommuMode, NoIommuPasses) {
  EXPECT_EQ(one_switch().verdict("iommu.mode"), Verdict::pass);
  TestPatient patient = one_switch();
  patient.folder("/sys/class/iommu").folder("/sys/kernel/iommu_groups");
  EXPECT_EQ(patient.verdict("iommu.mode"), Verdict::pass);
}

TEST(IommuMode, ADeviceOutsideOfEveryGroupPasses) {
  TestPatient patient = with_iommu("identity");
  patient.remove(device_path(kNic, {kRoot, kUpper, kNicPort}) + "/iommu_group");
  const auto findings = patient.run("iommu.mode");
  EXPECT_EQ(count(findings, Verdict::pass), 2U) << to_text(findings);
}

TEST(IommuMode, WhatCannotBeReadIsUnknown) {
  TestPatient patient = with_iommu("DMA");
  patient.unreadable("/sys/kernel/iommu_groups/12/type").remove("/sys/kernel/iommu_groups/13/type");
  auto findings = patient.run("iommu.mode");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::unknown);
  EXPECT_EQ(with_iommu("something new").verdict("iommu.mode"), Verdict::unknown);
  TestPatient hidden = one_switch();
  hidden.unreadable("/sys/kernel/iommu_groups");
  EXPECT_EQ(hidden.verdict("iommu.mode"), Verdict::unknown);
}

TEST(IommuMode, HeldOrBlockedGroups) {
  EXPECT_EQ(with_iommu("unmanaged").verdict("iommu.mode"), Verdict::warn);
  EXPECT_EQ(with_iommu("blocked").verdict("iommu.mode"), Verdict::fail);
}

TEST(IommuMode, VirtualMachines) {
  EXPECT_EQ(with_iommu("DMA", kVirtualXeon).verdict("iommu.mode"), Verdict::warn);
  EXPECT_EQ(one_switch(kVirtualXeon).verdict("iommu.mode"), Verdict::skip);
}

TEST(IommuMode, CoherentGpusAreExemptAndOtherArmMachinesWarned) {
  TestPatient patient = with_iommu("DMA-FQ", kArm);
  EXPECT_EQ(patient.verdict("iommu.mode"), Verdict::warn);
  patient.topology.gpus[0].is_coherent = true;
  EXPECT_EQ(patient.verdict("iommu.mode"), Verdict::pass);
}

// iommu.group ---------------------------------------------------------------------------------------------------------------------

const std::string kDma = "0000:3f:00.0", kDmaPort = "0000:3c:02.0";

// A coherent GPU and a NIC's DMA function, below one switch or below a root port each.
TestPatient coherent(bool shares_switch, int gpu_group, int dma_group, bool has_ats = true) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", kArm).file("/sys/class/dmi/id/sys_vendor", "NVIDIA\n");
  patient.file("/sys/class/dmi/id/product_name", "GB300 NVL72\n");
  patient.gpu(kGpu, {kRoot, kUpper, kGpuPort});
  patient.topology.gpus[0].is_coherent = true;
  const std::vector<std::string> above =
      shares_switch ? std::vector<std::string>{kRoot, kUpper, kDmaPort} : std::vector<std::string>{kFarRoot};
  patient.pci(kDma, above, 0x080100, 0, 0x15b3);
  give_group(patient, device_path(kGpu, {kRoot, kUpper, kGpuPort}), gpu_group, "DMA-FQ");
  give_group(patient, device_path(kDma, above), dma_group, "DMA-FQ");
  ConfigSpace space(0x15b3, 0x2100);
  space.express();
  if (has_ats) space.ats();
  give_config(patient, kDma, space);
  return patient;
}

TEST(IommuGroup, OnBareMetalBothShareOne) {
  EXPECT_EQ(coherent(true, 5, 5).verdict("iommu.group"), Verdict::pass);
  const auto findings = coherent(true, 5, 6).run("iommu.group");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::fail);
  EXPECT_EQ(findings[0].subject, "DMA function 0000:3f:00.0 and GPU 0000:3d:00.0");
  EXPECT_TRUE(has(findings[0].remedy, "write-grub-acs"));
}

TEST(IommuGroup, WithoutACommonBridgeEachHasItsOwnAndAts) {
  EXPECT_EQ(coherent(false, 5, 6).verdict("iommu.group"), Verdict::pass);
  EXPECT_EQ(coherent(false, 5, 5).verdict("iommu.group"), Verdict::fail);
  EXPECT_EQ(coherent(false, 5, 6, false).verdict("iommu.group"), Verdict::fail);
}

TEST(IommuGroup, VirtualMachinesNeedGroupsOfTheirOwn) {
  TestPatient patient = coherent(true, 5, 6);
  patient.file("/sys/class/dmi/id/sys_vendor", "QEMU\n");
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::pass);
  patient = coherent(true, 5, 5);
  patient.file("/sys/class/dmi/id/sys_vendor", "QEMU\n");
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::fail);
}

TEST(IommuGroup, UnknownWithoutGroupsRightsOrPartner) {
  TestPatient patient = coherent(true, 5, 5);
  patient.remove(device_path(kGpu, {kRoot, kUpper, kGpuPort}) + "/iommu_group");
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::unknown);
  patient = coherent(false, 5, 6);
  give_config(patient, kDma, ConfigSpace(0x15b3, 0x2100).express().ats(), 64);
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::unknown);
  patient = coherent(false, 5, 6);
  node(patient, kDma).numa_node = 1;
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::unknown);
}

TEST(IommuGroup, SkippedElsewhere) {
  EXPECT_EQ(with_iommu("identity").verdict("iommu.group"), Verdict::skip);
  TestPatient patient = with_iommu("DMA-FQ", kArm);
  patient.topology.gpus[0].is_coherent = true;
  EXPECT_EQ(patient.verdict("iommu.group"), Verdict::skip) << "a NIC without DMA functions";
}

// vm.detect -----------------------------------------------------------------------------------------------------------------------

TestPatient host(const std::string& cpu, const std::string& vendor = "", const std::string& product = "") {
  TestPatient patient;
  if (!cpu.empty()) patient.file("/proc/cpuinfo", cpu);
  if (!vendor.empty()) patient.file("/sys/class/dmi/id/sys_vendor", vendor + "\n");
  if (!product.empty()) patient.file("/sys/class/dmi/id/product_name", product + "\n");
  return patient;
}

TEST(VmDetect, BareMetalPasses) {
  EXPECT_EQ(host(kXeon).verdict("vm.detect"), Verdict::pass);
  EXPECT_EQ(host(kEpyc, "Supermicro", "AS -8125GS-TNHR").verdict("vm.detect"), Verdict::pass);
  EXPECT_EQ(host(kArm, "NVIDIA", "GB200 NVL").verdict("vm.detect"), Verdict::pass);
  EXPECT_EQ(host(kXeon, "Amazon EC2", "p4d.metal").verdict("vm.detect"), Verdict::pass);
  EXPECT_EQ(host(cpu_of("GenuineIntel", "Xeon", "fpu nohypervisor hypervisors")).verdict("vm.detect"), Verdict::pass)
      << "only the whole word counts";
}

TEST(VmDetect, VirtualMachinesWarn) {
  const auto findings = host(kVirtualXeon, "QEMU", "Standard PC (Q35 + ICH9, 2009)").run("vm.detect");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::warn);
  EXPECT_TRUE(has(findings[0].statement, "QEMU Standard PC")) << findings[0].statement;
  EXPECT_EQ(findings[0].readings.size(), 3U);
  EXPECT_EQ(host(kVirtualXeon).verdict("vm.detect"), Verdict::warn) << "the flag alone";
  EXPECT_EQ(host(kArm, "Amazon EC2", "c7g.4xlarge").verdict("vm.detect"), Verdict::warn);
  EXPECT_EQ(host(kArm, "Microsoft Corporation", "Virtual Machine").verdict("vm.detect"), Verdict::warn);
}

TEST(VmDetect, UnknownWhereNothingTells) {
  EXPECT_EQ(host("").verdict("vm.detect"), Verdict::unknown);
  EXPECT_EQ(host(kArm).verdict("vm.detect"), Verdict::unknown);
  TestPatient patient = host("");
  patient.unreadable("/proc/cpuinfo");
  const auto findings = patient.run("vm.detect");
  ASSERT_EQ(findings.size(), 1U) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::unknown);
  EXPECT_EQ(findings[0].readings.at(0).value, "permission denied");
}

TEST(VmDetect, AFileOfNoise) {
  EXPECT_EQ(host(std::string(100000, '\xff') + ":\n\n:::\n" + std::string(5000, ':')).verdict("vm.detect"), Verdict::unknown);
}

}  // namespace
}  // namespace gigabar::test
