// SPDX-License-Identifier: Apache-2.0
// Machines with an NVIDIA driver, for the tests of the checks of driver and GPUs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/doctor/patient.hpp"

namespace gigabar::test {

inline constexpr const char* kGpu = "0000:3b:00.0";
inline constexpr const char* kOtherGpu = "0000:5e:00.0";

inline std::string version_text(const std::string& version, bool is_open = true) {
  return (is_open ? "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version + "  Release Build  (builder@host)"
                  : "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Thu Sep 29 05:30:25 UTC 2022") +
         "\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
}

// The driver's files and nodes, and its GPU at kGpu.
inline TestPatient machine_with_driver(const std::string& version = "580.159.04", bool is_open = true) {
  TestPatient machine;
  machine.gpu(kGpu, {"0000:3a:00.0"});
  machine.file("/proc/driver/nvidia/version", version_text(version, is_open));
  machine.file("/sys/module/nvidia/version", version + "\n");
  machine.file(std::string("/proc/driver/nvidia/gpus/") + kGpu + "/information",
               "Model: \t\t NVIDIA test GPU\nBus Type: \t PCIe\nDevice Minor: \t 0\nGPU Excluded:\t No\n");
  machine.device("/dev/nvidiactl", true, true, 195, 255).device("/dev/nvidia0").device("/dev/nvidia-uvm", true, true, 509, 0);
  return machine;
}

// With a kernel and a libibverbs that take a dma-buf, and an adapter below the GPU's bridge.
inline TestPatient machine_with_rdma(const std::string& version = "580.159.04", bool is_open = true) {
  TestPatient machine = machine_with_driver(version, is_open);
  machine.nic("mlx5_0", "0000:3c:00.0", {"0000:3a:00.0"});
  machine.device("/dev/infiniband/uverbs0", true, true, 231, 192);
  machine.file("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");
  machine.file("/boot/config-6.1.0-28-amd64",
               "CONFIG_64BIT=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n");
  machine.answers.verbs_has_dmabuf = true;
  return machine;
}

// The only finding; a failure of the test when there is another number.
inline Finding only_finding(const TestPatient& machine, std::string_view check) {
  std::vector<Finding> findings = machine.run(check);
  EXPECT_EQ(findings.size(), 1u) << to_text(findings);
  return findings.empty() ? Finding{} : findings.front();
}

inline Finding finding_of(const TestPatient& machine, std::string_view check, std::string_view subject) {
  return of_subject(machine.run(check), subject);
}

inline bool has_reading(const Finding& finding, std::string_view source, std::string_view value) {
  for (const Reading& reading : finding.readings) {
    if (reading.source.find(source) != std::string::npos && reading.value.find(value) != std::string::npos) return true;
  }
  return false;
}

// The verdict, the statement's words, and the remedy's; an empty remedy means that there must be none.
inline void expect_finding(const Finding& finding, Verdict verdict, std::string_view statement, std::string_view remedy = {}) {
  EXPECT_EQ(finding.verdict, verdict) << to_text({finding});
  EXPECT_NE(finding.statement.find(statement), std::string::npos) << "wanted '" << statement << "' in\n" << to_text({finding});
  if (remedy.empty()) {
    EXPECT_TRUE(finding.remedy.empty()) << to_text({finding});
  } else {
    EXPECT_NE(finding.remedy.find(remedy), std::string::npos) << "wanted '" << remedy << "' in\n" << to_text({finding});
  }
}

}  // namespace gigabar::test
