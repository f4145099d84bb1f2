// SPDX-License-Identifier: Apache-2.0
// Which driver a node should lead to, whether its numbers are that driver's, and when it is opened to find out more.
#include "platform/device_nodes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "driver/system_calls.hpp"

namespace gigabar {
namespace {

constexpr const char* kDevices =
    "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n195 nvidiactl\n231 infiniband_verbs\n236 gdrdrv\n237 nvidia-caps\n"
    "244 infiniband_verbs\n509 nvidia-caps-imex-channels\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n259 gdrdrv\n";

SystemFiles files_with(const nlohmann::json& files) {
  const nlohmann::json archive = {{"format", "gigabar-machine"}, {"version", 1}, {"files", files}};
  return *SystemFiles::of_archive(archive.dump());
}

NodeFacts numbered(std::uint32_t major, std::uint32_t minor) {
  return {NodeKind::character_device, 0666, major, minor, true, true, {}};
}

TEST(DeviceNodes, EachNodeHasTheNumberOfItsDriver) {
  const SystemFiles files = files_with({{"/proc/devices", kDevices},
                                        {"/sys/class/infiniband_verbs/uverbs3/dev", "244:3\n"},
                                        {"/proc/misc", "183 hw_random\n124 rdma_cm\n"}});
  const struct {
    const char* path;
    std::uint32_t major, minor;
  } cases[] = {{"/dev/nvidiactl", 195, 255},
               {"/dev/nvidia0", 195, 0},
               {"/dev/nvidia12", 195, 12},
               {"/dev/nvidia-modeset", 195, 254},
               {"/dev/nvidia-uvm", 510, 0},
               {"/dev/nvidia-uvm-tools", 510, 1},
               {"/dev/nvidia-caps/nvidia-cap2", 237, 2},
               {"/dev/nvidia-caps-imex-channels/channel7", 509, 7},
               {"/dev/gdrdrv", 236, 0},
               {"/dev/infiniband/uverbs3", 244, 3},
               {"/dev/infiniband/rdma_cm", 10, 124}};
  for (const auto& [path, major, minor] : cases) {
    const auto driver = driver_of_node(files, path);
    ASSERT_TRUE(driver) << path;
    EXPECT_TRUE(driver->is_told) << path;
    EXPECT_TRUE(is_number_of(*driver, numbered(major, minor))) << path;
    EXPECT_FALSE(is_number_of(*driver, numbered(major, minor + 1))) << path;
    EXPECT_FALSE(is_number_of(*driver, numbered(major + 100, minor))) << path;
  }
  for (const char* path : {"/dev/watchdog", "/dev/nvidia", "/dev/nvidia0x", "/dev/infiniband/issm0", "/dev/infiniband/umad0",
                           "/dev/infiniband/uverbs", "/proc/devices"}) {
    EXPECT_FALSE(driver_of_node(files, path)) << path;
  }
}

TEST(DeviceNodes, WithoutItsOwnFileAnAdaptersNodeHasOneOfTheMajors) {
  const SystemFiles files = files_with({{"/proc/devices", kDevices}});
  const auto driver = driver_of_node(files, "/dev/infiniband/uverbs0");
  ASSERT_TRUE(driver);
  EXPECT_EQ(driver->majors, (std::vector<std::uint32_t>{231, 244}));
  EXPECT_TRUE(is_number_of(*driver, numbered(231, 192)));
  EXPECT_TRUE(is_number_of(*driver, numbered(244, 0)));
  EXPECT_FALSE(is_number_of(*driver, numbered(10, 0)));
  EXPECT_TRUE(is_number_of(*driver_of_node(files, "/dev/infiniband/rdma_cm"), numbered(10, 58))) << "the minor is not told";
  EXPECT_FALSE(is_number_of(*driver_of_node(files, "/dev/infiniband/rdma_cm"), numbered(11, 58)));
}

TEST(DeviceNodes, ADriverThatIsNotListedHasNoNumber) {
  const SystemFiles files = files_with(
      {{"/proc/devices", "Character devices:\n236 drm\n\nBlock devices:\n236 gdrdrv\n"}, {"/proc/misc", "183 hw_random\n"}});
  const auto driver = driver_of_node(files, "/dev/gdrdrv");
  ASSERT_TRUE(driver && driver->is_told);
  EXPECT_TRUE(driver->majors.empty()) << "a block device's number is another thing";
  EXPECT_FALSE(is_number_of(*driver, numbered(236, 0)));
  EXPECT_FALSE(is_number_of(*driver_of_node(files, "/dev/infiniband/rdma_cm"), numbered(10, 124)));
  EXPECT_EQ(owner_of_major(files, 236), "drm");
  EXPECT_EQ(owner_of_major(files, 242), "");
}

TEST(DeviceNodes, WhatIsNotToldDoesNotCount) {
  const SystemFiles files = files_with(nlohmann::json::object());
  for (const char* path : {"/dev/gdrdrv", "/dev/nvidia0", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"}) {
    const auto driver = driver_of_node(files, path);
    ASSERT_TRUE(driver) << path;
    EXPECT_FALSE(driver->is_told) << path;
    EXPECT_TRUE(is_number_of(*driver, numbered(1, 2))) << path;
  }
  for (const char* wrong : {"", "231", "231:", ":192", "x:y", "-1:3", "99999999:1"}) {
    const SystemFiles odd = files_with({{"/sys/class/infiniband_verbs/uverbs0/dev", wrong}});
    EXPECT_FALSE(driver_of_node(odd, "/dev/infiniband/uverbs0")->is_told) << wrong;
  }
}

TEST(DeviceNodes, OlderDriversHaveOtherNames) {
  const SystemFiles files = files_with({{"/proc/devices", "Character devices:\n195 nvidia-frontend\n"}});
  EXPECT_TRUE(is_number_of(*driver_of_node(files, "/dev/nvidia1"), numbered(195, 1)));
}

// --- opening, with a device that every machine has

int open_error = 0;
int open_count = 0;

class OpenedNodes : public testing::Test {
 protected:
  OpenedNodes() {
    calls_ = kernel_system_calls();
    calls_.open = [](const char* path, int flags) {
      ++open_count;
      if (open_error == 0) return kernel_system_calls().open(path, flags);
      errno = open_error;
      return -1;
    };
    open_error = open_count = 0;
    replace_system_calls(&calls_);
  }
  ~OpenedNodes() override { replace_system_calls(nullptr); }

  static std::optional<int> opened(const std::optional<NodeDriver>& driver) {
    return try_to_open("/dev/null", SystemFiles::live().facts("/dev/null"), driver);
  }
  const NodeDriver mem_{"mem", true, {1}, 3};

 private:
  SystemCalls calls_{};
};

TEST_F(OpenedNodes, SayWhatOpenSaid) {
  EXPECT_EQ(opened(mem_), 0);
  for (const int error : {EPERM, ENXIO, EIO}) {
    open_error = error;
    EXPECT_EQ(opened(mem_), error);
  }
  EXPECT_EQ(open_count, 4);
}

TEST_F(OpenedNodes, AreOnlyThoseOfTheirDriver) {
  EXPECT_FALSE(opened({}));
  EXPECT_FALSE(opened(NodeDriver{"mem", true, {1}, 4})) << "another minor number";
  EXPECT_FALSE(opened(NodeDriver{"gdrdrv", true, {}, 0})) << "the driver is not there";
  EXPECT_FALSE(opened(NodeDriver{"mem", false, {}, {}})) << "nothing says whose it is";
  NodeFacts closed = SystemFiles::live().facts("/dev/null");
  closed.can_write = false;
  EXPECT_FALSE(try_to_open("/dev/null", closed, mem_));
  EXPECT_FALSE(try_to_open("/dev", SystemFiles::live().facts("/dev"), mem_));
  EXPECT_FALSE(SystemFiles::live().open_errno("/dev/null")) << "none of those that are looked at";
  EXPECT_EQ(open_count, 0);
}

TEST(DeviceNodes, AnArchiveHoldsWhatOpenSaid) {
  const auto archive = [](const nlohmann::json& device) {
    return SystemFiles::of_archive(
        nlohmann::json{{"format", "gigabar-machine"}, {"version", 1}, {"devices", {{"/dev/gdrdrv", device}}}}.dump());
  };
  const nlohmann::json old = {{"mode", 438}, {"major", 236}, {"minor", 0}, {"can_read", true}, {"can_write", true}};
  ASSERT_TRUE(archive(old));
  EXPECT_FALSE(archive(old)->open_errno("/dev/gdrdrv")) << "an archive of before";
  EXPECT_FALSE(archive(old)->open_errno("/dev/nvidia0"));
  for (const int error : {0, EPERM}) {
    nlohmann::json device = old;
    device["open_errno"] = error;
    ASSERT_TRUE(archive(device));
    EXPECT_EQ(archive(device)->open_errno("/dev/gdrdrv"), error);
  }
  for (const nlohmann::json& wrong : {nlohmann::json("EPERM"), nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json(5000)}) {
    nlohmann::json device = old;
    device["open_errno"] = wrong;
    EXPECT_FALSE(archive(device)) << wrong;
  }
}

}  // namespace
}  // namespace gigabar
