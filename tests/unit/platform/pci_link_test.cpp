// SPDX-License-Identifier: Apache-2.0
// PCIe links from /sys: platform/pci_link.hpp, over trees of the test's own.
#include "platform/pci_link.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "platform/roots.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

TEST(PcieRate, OfEachGeneration) {
  struct Case {
    double gt_per_s;
    unsigned width;
    const char* name;
    double gb_per_s;
  };
  for (const Case& known :
       {Case{2.5, 16, "PCIe 1.0 x16", 4.0}, Case{5, 16, "PCIe 2.0 x16", 8.0}, Case{8, 16, "PCIe 3.0 x16", 15.754},
        Case{16, 16, "PCIe 4.0 x16", 31.508}, Case{32, 16, "PCIe 5.0 x16", 63.015}, Case{32, 8, "PCIe 5.0 x8", 31.508},
        Case{64, 16, "PCIe 6.0 x16", 121.0}, Case{2.5, 1, "PCIe 1.0 x1", 0.25}}) {
    const auto link = pcie_link_of_speed(known.gt_per_s, known.width);
    ASSERT_TRUE(link) << known.name;
    EXPECT_EQ(link->name(), known.name);
    EXPECT_NEAR(link->gb_per_s(), known.gb_per_s, 0.001) << known.name;
  }
}

TEST(PcieRate, OfWhatIsNotKnown) {
  EXPECT_FALSE(pcie_link_of_speed(32, 0));
  EXPECT_FALSE(pcie_link_of_speed(32, 255)) << "what a device without a link answers";
  EXPECT_FALSE(pcie_link_of_speed(7, 16));
  EXPECT_FALSE(pcie_link_of_generation(0, 16));
  EXPECT_FALSE(pcie_link_of_generation(99, 16));
  EXPECT_EQ(pcie_link_of_generation(5, 16)->gt_per_s, 32);
  EXPECT_EQ(PcieLink{}.gb_per_s(), 0);
}

class PciTree : public testing::Test {
 protected:
  PciTree() { set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"}); }
  ~PciTree() override { set_platform_roots({}); }

  // `path` below /sys/devices, "pci0000:3a/0000:3a:01.0".
  void add(const std::string& path, const std::string& speed, const std::string& width) {
    namespace fs = std::filesystem;
    tree_.write("sys/devices/" + path + "/current_link_speed", speed + "\n");
    tree_.write("sys/devices/" + path + "/current_link_width", width + "\n");
    fs::create_directories(tree_.path() + "/sys/bus/pci/devices");
    fs::create_symlink("../../../devices/" + path, tree_.path() + "/sys/bus/pci/devices/" + fs::path(path).filename().string());
  }

  test::ScopedEnvironment no_nvml_{"GIGABAR_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1"};
  test::TemporaryFolder tree_;
};

TEST_F(PciTree, TheWayUpToTheRootPort) {
  add("pci10000:00/10000:00:03.0", "16.0 GT/s PCIe", "8");
  add("pci10000:00/10000:00:03.0/10000:01:00.0", "8 GT/s", "4");
  add("pci10000:00/10000:00:03.0/10000:01:00.0/10000:02:00.0", "32.0 GT/s PCIe", "16");
  const auto path = pcie_path({0x10000, 2, 0, 0});
  ASSERT_EQ(path.size(), 3u);
  EXPECT_EQ(path[0].device, "10000:02:00.0");
  EXPECT_EQ(path[0].link->name(), "PCIe 5.0 x16");
  EXPECT_EQ(path[0].source, "sysfs");
  EXPECT_EQ(path[1].device, "10000:01:00.0");
  EXPECT_EQ(path[1].link->name(), "PCIe 3.0 x4");
  EXPECT_EQ(path[2].device, "10000:00:03.0");
  EXPECT_EQ(path[2].link->name(), "PCIe 4.0 x8");
}

TEST_F(PciTree, WhatIsNotToldIsNoLink) {
  ASSERT_EQ(pcie_path({0, 1, 0, 0}).size(), 1u) << "a device that sysfs does not know";
  EXPECT_FALSE(pcie_path({0, 1, 0, 0}).front().link);
  add("pci0000:00/0000:00:01.0", "Unknown", "16");
  add("pci0000:00/0000:00:01.0/0000:01:00.0", "32.0 GT/s PCIe", "255");
  add("pci0000:00/0000:00:02.0", "", "");
  tree_.write("sys/devices/pci0000:00/0000:00:03.0/vendor", "0x10de\n");
  const auto path = pcie_path({0, 1, 0, 0});
  ASSERT_EQ(path.size(), 2u);
  EXPECT_FALSE(path[0].link);
  EXPECT_FALSE(path[1].link);
  EXPECT_EQ(path[0].source, "");
  EXPECT_FALSE(pcie_path({0, 0, 2, 0}).at(0).link);
}

TEST_F(PciTree, BetweenTwoDevicesLiesWhatTheyDoNotShare) {
  const std::string root = "pci0000:17/0000:17:01.0", upper = root + "/0000:18:00.0";
  add(root, "32.0 GT/s PCIe", "16");
  add(upper, "32.0 GT/s PCIe", "16");
  add(upper + "/0000:19:00.0", "32.0 GT/s PCIe", "16");
  add(upper + "/0000:19:00.0/0000:1a:00.0", "32.0 GT/s PCIe", "16");
  add(upper + "/0000:19:04.0", "32.0 GT/s PCIe", "8");
  add(upper + "/0000:19:04.0/0000:1c:00.0", "32.0 GT/s PCIe", "8");
  const auto between = pcie_path_between(pcie_path({0, 0x1a, 0, 0}), pcie_path({0, 0x1c, 0, 0}));
  ASSERT_EQ(between.size(), 4u);
  EXPECT_EQ(between[0].device, "0000:1a:00.0");
  EXPECT_EQ(between[1].device, "0000:19:00.0");
  EXPECT_EQ(between[2].device, "0000:1c:00.0");
  EXPECT_EQ(between[3].device, "0000:19:04.0");
}

}  // namespace
}  // namespace gigabar
