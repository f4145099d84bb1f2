// SPDX-License-Identifier: Apache-2.0
// What the NVIDIA driver publishes in /proc and /sys: platform/nvidia.hpp, over trees of the test's own.
#include "platform/nvidia.hpp"

#include <gtest/gtest.h>

#include <string>

#include "platform/roots.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

class NvidiaTree : public testing::Test {
 protected:
  NvidiaTree() { set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"}); }
  ~NvidiaTree() override { set_platform_roots({}); }

  void write_information(const std::string& content) { tree_.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", content); }

  // Nobody else may answer for the tree.
  test::ScopedEnvironment no_nvml_{"GIGABAR_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1"};
  test::TemporaryFolder tree_;
  const PciAddress address_{0, 0x3b, 0, 0};
};

TEST_F(NvidiaTree, VersionOfTheModule) {
  EXPECT_EQ(nvidia_driver_version(), "");
  tree_.write("sys/module/nvidia/version", "580.159.04\n");
  EXPECT_EQ(nvidia_driver_version(), "580.159.04");
}

TEST_F(NvidiaTree, VersionFromTheProcLine) {
  tree_.write(
      "proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build  (b@h)\nGCC version:  gcc 12.2.0\n");
  EXPECT_EQ(nvidia_driver_version(), "595.45.04");
  tree_.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.42  Thu\n");
  EXPECT_EQ(nvidia_driver_version(), "470.42");
  tree_.write("proc/driver/nvidia/version", "NVRM version: none\nGCC version:  gcc version 12.2.0\n");
  EXPECT_EQ(nvidia_driver_version(), "") << "the compiler's version is not the driver's";
}

TEST_F(NvidiaTree, VersionOfNonsenseIsEmpty) {
  tree_.write("sys/module/nvidia/version", "\n");
  tree_.write("proc/driver/nvidia/version", "no numbers here, . and .. only");
  EXPECT_EQ(nvidia_driver_version(), "");
}

TEST_F(NvidiaTree, MinorOfTheDevice) {
  EXPECT_FALSE(nvidia_device_minor(address_));
  write_information("Model: \t\t NVIDIA H200\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 7\nGPU Excluded:\t No\n");
  EXPECT_EQ(nvidia_device_minor(address_), 7u);
  EXPECT_FALSE(nvidia_device_minor(PciAddress{0, 0x3c, 0, 0})) << "another device's file does not answer";
}

TEST_F(NvidiaTree, MinorOfNonsenseIsNone) {
  for (const char* bad :
       {"", "Device Minor:", "Device Minor: \t x\n", "Device Minor: -1\n", "Device Minor: 99999999999\n", "Device Minor 3\n"}) {
    write_information(bad);
    EXPECT_FALSE(nvidia_device_minor(address_)) << "'" << bad << "'";
  }
}

TEST_F(NvidiaTree, AnOversizedFileIsNotRead) {
  write_information("Device Minor: 3\n" + std::string(100000, 'x'));
  EXPECT_FALSE(nvidia_device_minor(address_));
}

TEST(NvidiaGpuId, PacksDomainBusAndDevice) {
  EXPECT_EQ(nvidia_gpu_id({0, 0, 6, 0}), 6u);
  EXPECT_EQ(nvidia_gpu_id({0, 0x3b, 0, 0}), 0x3b00u);
  EXPECT_EQ(nvidia_gpu_id({2, 0x3b, 1, 0}), 0x23b01u);
}

}  // namespace
}  // namespace gigabar
