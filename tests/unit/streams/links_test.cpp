// SPDX-License-Identifier: Apache-2.0
// The link a transfer crosses: streams/links.hpp, over trees of the test's own and an NVML that says what the test wants.
#include "streams/links.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fakes/paths.hpp"
#include "platform/roots.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

constexpr int kHost = StreamPlace::kHost;

// Two GPUs behind one switch in PCI domain 1, whose upper port runs with 16 lanes, and one GPU below a port of domain 0.
class Links : public testing::Test {
 protected:
  explicit Links(const char* nvml = test::kFakeNvmlLibrary) : nvml_library_("GIGABAR_NVML_LIBRARY", nvml) {
    set_platform_roots({tree_.path() + "/sys", tree_.path() + "/proc", tree_.path() + "/dev"});
    const std::string upper = "pci0001:00/0001:00:01.0/0001:01:00.0";
    add("pci0001:00/0001:00:01.0", "32.0 GT/s PCIe", "16");
    add(upper, "32.0 GT/s PCIe", "16");
    for (const char* port : {"/0001:02:00.0", "/0001:02:01.0"}) add(upper + port, "32.0 GT/s PCIe", "16");
    add(upper + "/0001:02:00.0/0001:03:00.0", "32.0 GT/s PCIe", "16");
    add(upper + "/0001:02:01.0/0001:04:00.0", "32.0 GT/s PCIe", "16");
    add("pci0000:80/0000:80:02.0", "16.0 GT/s PCIe", "16");
    add("pci0000:80/0000:80:02.0/0000:81:00.0", "16.0 GT/s PCIe", "16");
    for (const PciAddress& address : {PciAddress{1, 3, 0, 0}, PciAddress{1, 4, 0, 0}, PciAddress{0, 0x81, 0, 0}}) {
      DeviceInfo device;
      device.index = static_cast<int>(devices_.size());
      device.pci = address;
      devices_.push_back(device);
    }
  }
  ~Links() override { set_platform_roots({}); }

  // `path` below /sys/devices.
  void add(const std::string& path, const std::string& speed, const std::string& width) {
    namespace fs = std::filesystem;
    const std::string name = fs::path(path).filename().string();
    set(path, speed, width);
    fs::create_directories(tree_.path() + "/sys/bus/pci/devices");
    fs::create_symlink("../../../devices/" + path, tree_.path() + "/sys/bus/pci/devices/" + name);
  }
  void set(const std::string& path, const std::string& speed, const std::string& width) {
    tree_.write("sys/devices/" + path + "/current_link_speed", speed + "\n");
    tree_.write("sys/devices/" + path + "/current_link_width", width + "\n");
  }

  StreamLink link(int source, int destination, bool uses_peer_access = true,
                  StreamExecutor executor = StreamExecutor::copy_engine) const {
    Transfer transfer;
    transfer.source.device = source;
    transfer.destination.device = destination;
    transfer.executor = executor;
    return link_of(transfer, devices_, uses_peer_access);
  }
  static void expect_unknown(const StreamLink& link, const std::string& reason) {
    EXPECT_EQ(link.name, "unknown");
    EXPECT_EQ(link.gb_per_s, 0);
    EXPECT_NE(link.reason.find(reason), std::string::npos) << link.reason;
  }

  test::ScopedEnvironment no_cuda_{"GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"};
  test::ScopedEnvironment nvml_library_;
  test::TemporaryFolder tree_;
  std::vector<DeviceInfo> devices_;
};

TEST_F(Links, HostAndGpu) {
  for (const StreamLink& found :
       {link(kHost, 0), link(0, kHost), link(0, kHost, false, StreamExecutor::flag),
        link(kHost, 0, false, StreamExecutor::pointer_chase), link(0, kHost, false, StreamExecutor::cpu)}) {
    EXPECT_EQ(found.name, "PCIe 5.0 x16");
    EXPECT_NEAR(found.gb_per_s, 63.0, 0.05);
    EXPECT_NE(found.reason.find("0001:03:00.0 is the slowest of 4 PCI devices up to the root port, from sysfs"), std::string::npos)
        << found.reason;
  }
  EXPECT_EQ(link(kHost, 2).name, "PCIe 4.0 x16");
}

TEST_F(Links, TheSlowestHopLimits) {
  set("pci0001:00/0001:00:01.0/0001:01:00.0", "32.0 GT/s PCIe", "8");
  const StreamLink found = link(kHost, 0);
  EXPECT_EQ(found.name, "PCIe 5.0 x8");
  EXPECT_NEAR(found.gb_per_s, 31.5, 0.05);
  EXPECT_NE(found.reason.find("0001:01:00.0"), std::string::npos) << found.reason;
}

TEST_F(Links, ABridgeThatDoesNotTellIsNamed) {
  set("pci0000:80/0000:80:02.0", "Unknown", "0");
  const StreamLink found = link(kHost, 2);
  EXPECT_EQ(found.name, "PCIe 4.0 x16");
  EXPECT_NE(found.reason.find("not told of 0000:80:02.0"), std::string::npos) << found.reason;
}

TEST_F(Links, WithoutADeviceOrItsAddress) {
  expect_unknown(link(kHost, kHost), "host memory");
  expect_unknown(link(kHost, 7), "no device 7");
  devices_[0].pci.reset();
  expect_unknown(link(0, kHost), "PCI address of device 0");
  devices_[1].is_stand_in = true;
  expect_unknown(link(1, kHost), "stand-in");
  expect_unknown(link(1, 1), "stand-in");
  expect_unknown(link(2, 1), "stand-in");
}

#if GIGABAR_HAS_NVML
class LinksWithNvml : public Links {};

TEST_F(LinksWithNvml, WhatSysfsDoesNotTellNvmlDoes) {
  set("pci0000:80/0000:80:02.0", "Unknown", "255");
  set("pci0000:80/0000:80:02.0/0000:81:00.0", "Unknown", "0");
  {
    const test::ScopedEnvironment silent("GIGABAR_FAKE_NVML_GPUS", "0000:81:00.0");
    expect_unknown(link(kHost, 2), "0000:81:00.0");
  }
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", "0000:81:00.0 pcie=6x8");
  const StreamLink found = link(kHost, 2);
  EXPECT_EQ(found.name, "PCIe 6.0 x8");
  EXPECT_NEAR(found.gb_per_s, 60.5, 0.05);
  EXPECT_NE(found.reason.find("NVML"), std::string::npos) << found.reason;
}

TEST_F(LinksWithNvml, CoherentCpus) {
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", "0001:03:00.0 c2c=10@44712");
  const StreamLink found = link(kHost, 0);
  EXPECT_EQ(found.name, "NVLink-C2C 10 x 44.7 GB/s");
  EXPECT_NEAR(found.gb_per_s, 447.12, 0.01);
}

TEST_F(LinksWithNvml, ThroughSwitches) {
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "0001:03:00.0 links=18>switch@26562; 0001:04:00.0 idle=2 links=16>switch@26562; 0000:81:00.0");
  const StreamLink found = link(0, 1);
  EXPECT_EQ(found.name, "NVLink 16 x 26.6 GB/s") << "as many as both have";
  EXPECT_NEAR(found.gb_per_s, 424.99, 0.01);
  const test::ScopedEnvironment whole("GIGABAR_FAKE_NVML_GPUS",
                                      "0001:03:00.0 links=18>switch@26562; 0001:04:00.0 links=18>switch@26562");
  EXPECT_EQ(link(1, 0, true, StreamExecutor::kernel).name, "NVLink 18 x 26.6 GB/s");
  EXPECT_NEAR(link(0, 1).gb_per_s, 478.1, 0.05);
}

TEST_F(LinksWithNvml, DirectLinksCountOnlyToTheOther) {
  const test::ScopedEnvironment gpus(
      "GIGABAR_FAKE_NVML_GPUS",
      "0001:03:00.0 links=2>0001:04:00.0@25781 links=4>0000:81:00.0@25781; 0001:04:00.0 links=2>0001:03:00.0@25781; "
      "0000:81:00.0 links=4>0001:03:00.0@25781");
  EXPECT_EQ(link(0, 1).name, "NVLink 2 x 25.8 GB/s");
  EXPECT_EQ(link(0, 2).name, "NVLink 4 x 25.8 GB/s");
  EXPECT_EQ(link(1, 2).name, "PCIe 4.0 x16") << "these two have no link with each other";
}

TEST_F(LinksWithNvml, ARateThatIsNotTold) {
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "0001:03:00.0 links=18>switch@0; 0001:04:00.0 links=18>switch@26562");
  EXPECT_EQ(link(0, 1).name, "NVLink 18");
  EXPECT_EQ(link(0, 1).gb_per_s, 0);
  EXPECT_FALSE(link(0, 1).reason.empty());
}

TEST_F(LinksWithNvml, OtherEndsThatAreNotTold) {
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                                     "0001:03:00.0 links=4>hidden@25781; 0001:04:00.0 links=4>hidden@25781; 0000:81:00.0");
  expect_unknown(link(0, 1), "other end of 4 active NVLinks");
  EXPECT_EQ(link(0, 2).name, "PCIe 4.0 x16") << "one of the two has no NVLink at all";
}

TEST_F(LinksWithNvml, WithoutNvLinkItIsPcieUpToTheCommonBridge) {
  set("pci0001:00/0001:00:01.0/0001:01:00.0", "8.0 GT/s PCIe", "4");  // above both
  set("pci0001:00/0001:00:01.0/0001:01:00.0/0001:02:01.0/0001:04:00.0", "16.0 GT/s PCIe", "8");
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", "0001:03:00.0; 0001:04:00.0 idle=4; 0000:81:00.0");
  const StreamLink found = link(0, 1);
  EXPECT_EQ(found.name, "PCIe 4.0 x8");
  EXPECT_NE(found.reason.find("0001:04:00.0 is the slowest of 4"), std::string::npos) << found.reason;
  EXPECT_EQ(link(0, 2).name, "PCIe 3.0 x4") << "to another root port all of the way counts";
  EXPECT_EQ(link(0, 1, false).name, "PCIe 3.0 x4") << "staged, it goes all the way up";
  EXPECT_TRUE(link(0, 1, false).reason.starts_with("staged through the host: ")) << link(0, 1, false).reason;
  EXPECT_TRUE(link(0, 1, true, StreamExecutor::cpu).reason.starts_with("copied by the CPU: "));
  EXPECT_EQ(link(0, 0, true, StreamExecutor::cpu).name, "PCIe 3.0 x4") << "the CPU reads and writes through the window";
}

TEST_F(LinksWithNvml, DeviceMemory) {
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", "0001:03:00.0 memory=6016@3201; 0001:04:00.0");
  const StreamLink found = link(0, 0);
  EXPECT_EQ(found.name, "device memory");
  EXPECT_NEAR(found.gb_per_s, 4814.3 / 2, 0.1);
  EXPECT_NE(found.reason.find("6016 bit x 3201 MHz"), std::string::npos) << found.reason;
  expect_unknown(link(1, 1), "memory clock");
  EXPECT_EQ(link(0, 0, true, StreamExecutor::pointer_chase).name, "device memory");
}

class LinksOfOldNvml : public Links {
 public:
  LinksOfOldNvml() : Links(test::kFakeOldNvmlLibrary) {}
  void TestBody() override {
    const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", "0001:03:00.0; 0001:04:00.0");
    EXPECT_EQ(link(kHost, 0).name, "PCIe 5.0 x16");
    expect_unknown(link(0, 1), "NVML does not tell the NVLinks");
    expect_unknown(link(0, 0), "memory clock");
    EXPECT_EQ(link(0, 1, false).name, "PCIe 5.0 x16");
  }
};
ISOLATED_TEST(LinksAlone, AnOldNvmlLeavesThemUnknown) { LinksOfOldNvml().TestBody(); }

class LinksOfNoNvml : public Links {
 public:
  LinksOfNoNvml() : Links("/nonexistent/libnvidia-ml.so.1") {}
  void TestBody() override {
    EXPECT_EQ(link(kHost, 0).name, "PCIe 5.0 x16");
    expect_unknown(link(0, 1), "libnvidia-ml.so.1");
    expect_unknown(link(0, 0), "libnvidia-ml.so.1");
  }
};
ISOLATED_TEST(LinksAlone, WithoutNvmlTheyAreUnknown) { LinksOfNoNvml().TestBody(); }
#endif

}  // namespace
}  // namespace gigabar
