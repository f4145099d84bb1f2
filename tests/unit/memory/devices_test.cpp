// SPDX-License-Identifier: Apache-2.0
// devices() and drivers() on machines with GPUs, with broken drivers, and with stand-ins asked for.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

ISOLATED_TEST(Devices, EachGpuInCudasOrder) {
  FakeSession session;
  session.machine().gpu_count = 3;
  session.machine().gpus[2].numa_node = 1;
  session.start();
  const auto list = devices();
  ASSERT_TRUE(list) << list.error().message();
  ASSERT_EQ(list->size(), 3u);
  for (int index = 0; index < 3; ++index) {
    const DeviceInfo& device = (*list)[static_cast<std::size_t>(index)];
    const fake::Gpu& gpu = session.machine().gpus[index];
    EXPECT_EQ(device.index, index);
    EXPECT_EQ(device.name, gpu.name);
    EXPECT_FALSE(device.is_stand_in);
    ASSERT_TRUE(device.pci);
    EXPECT_EQ(device.pci->to_string(), gpu.pci_address);
    EXPECT_EQ(device.numa_node, gpu.numa_node);
    EXPECT_EQ(device.memory_bytes, gpu.memory_bytes);
    EXPECT_EQ(device.compute_major, 9);
    EXPECT_EQ(device.uuid.size(), std::string("GPU-00000000-0000-0000-0000-000000000000").size()) << device.uuid;
    EXPECT_TRUE(device.uuid.starts_with("GPU-"));
  }
  EXPECT_NE((*list)[0].uuid, (*list)[1].uuid);
}

ISOLATED_TEST(Devices, StandInsWhenTheyAreAskedFor) {
  FakeSession session;
  session.start();
  EXPECT_FALSE(devices()->front().is_stand_in);
  const test::ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const auto list = devices();
  ASSERT_EQ(list->size(), 2u);
  EXPECT_TRUE(list->front().is_stand_in);
  EXPECT_TRUE(DeviceMemory::allocate(1, 4096)->is_stand_in());
}

ISOLATED_TEST(Devices, ABrokenDriverIsAnErrorAndNotAStandIn) {
  FakeSession session;
  session.plant(fake::Call::cuda, "cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  const auto list = devices();
  EXPECT_EQ(list.status(), Status::device_error);
  EXPECT_EQ(list.error().record().native.code, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_NE(list.error().record().remedy.find("GIGABAR_STAND_IN"), std::string::npos);
}

ISOLATED_TEST(Devices, WithoutAGpuThereIsAStandIn) {
  FakeSession session;
  session.machine().gpu_count = 0;
  const auto list = devices();
  ASSERT_TRUE(list) << list.error().message();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_TRUE(list->front().is_stand_in);
}

ISOLATED_TEST(Devices, TooOldADriverGivesAStandInAndAReason) {
  FakeSession session;
  session.machine().cuda_version = 11000;
  const auto list = devices();
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->front().is_stand_in);
  EXPECT_EQ(drivers().front().availability.code, AvailabilityCode::driver_too_old);
}

const Availability& of(const std::vector<DriverReport>& reports, const std::string& name) {
  for (const DriverReport& report : reports) {
    if (report.name == name) return report.availability;
  }
  static const Availability none{AvailabilityCode::not_built, "no such report", "", {}};
  ADD_FAILURE() << "no report of " << name;
  return none;
}

ISOLATED_TEST(Drivers, AllThere) {
  FakeSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  const auto reports = drivers();
  EXPECT_TRUE(of(reports, "libcuda").is_ok());
  EXPECT_TRUE(of(reports, "resource manager").is_ok()) << of(reports, "resource manager").reason;
  EXPECT_NE(of(reports, "resource manager").reason.find("580.159.04"), std::string::npos);
  EXPECT_TRUE(of(reports, "gdrdrv").is_ok());
  EXPECT_NE(of(reports, "gdrdrv").reason.find("2.6"), std::string::npos);
  EXPECT_EQ(FakeSession::counts().control_descriptors, 0u) << "looking keeps nothing open";
}

// Each absent thing has its code, a reason and, where there is one, a remedy.
ISOLATED_TEST(Drivers, EachAbsenceHasItsOwnCode) {
  FakeSession session;
  session.start();
  EXPECT_EQ(of(drivers(), "gdrdrv").code, AvailabilityCode::no_device);
  EXPECT_FALSE(of(drivers(), "gdrdrv").remedy.empty());

  const auto expect_rm = [&](int error, AvailabilityCode code) {
    session.plant(fake::Call::open, "/dev/nvidiactl", error);
    const auto reports = drivers();
    EXPECT_EQ(name_of(of(reports, "resource manager").code), name_of(code));
    EXPECT_FALSE(of(reports, "resource manager").reason.empty());
    EXPECT_FALSE(of(reports, "resource manager").remedy.empty());
    session.remove_faults();
  };
  expect_rm(ENOENT, AvailabilityCode::no_device);
  expect_rm(EACCES, AvailabilityCode::no_permission);

  session.tree().write("sys/module/nvidia/version", "510.85.02\n");
  EXPECT_EQ(of(drivers(), "resource manager").code, AvailabilityCode::driver_too_old);
  session.tree().write("sys/module/nvidia/version", "580.159.04\n");
  session.machine().has_other_rm_structs = true;
  EXPECT_EQ(of(drivers(), "resource manager").code, AvailabilityCode::driver_unknown);
  session.machine().has_other_rm_structs = false;
  EXPECT_TRUE(of(drivers(), "resource manager").is_ok());

  session.machine().has_gdrdrv = true;
  session.plant(fake::Call::open, "/dev/gdrdrv", EACCES);
  EXPECT_EQ(of(drivers(), "gdrdrv").code, AvailabilityCode::no_permission);
  session.remove_faults();
  session.machine().gdrdrv_version = 0x10003;
  EXPECT_FALSE(of(drivers(), "gdrdrv").is_ok());
}

}  // namespace
}  // namespace gigabar
