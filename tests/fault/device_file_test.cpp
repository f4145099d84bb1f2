// SPDX-License-Identifier: Apache-2.0
// Device files that are absent or forbidden: the reason names the file and the remedy.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

void expect_refused(const char* path, int error, const char* code, const char* remedy_part) {
  MappingSession session;
  session.plant(fake::Call::open, path, error);
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096, require(MappingBackend::rm));
  ASSERT_FALSE(refused) << path;
  const std::string message = refused.error().message();
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_NE(message.find(code), std::string::npos) << message;
  EXPECT_NE(message.find(remedy_part), std::string::npos) << message;
  EXPECT_EQ(FakeSession::counts().windows, 0u);
  session.remove_faults();
  expect_shows_memory(must_map(address, 4096, require(MappingBackend::rm)), 1);
  FakeSession::free(address);
}

ISOLATED_TEST(DeviceFiles, ControlAbsent) { expect_refused("/dev/nvidiactl", ENOENT, "ENOENT", "container"); }
ISOLATED_TEST(DeviceFiles, ControlForbidden) { expect_refused("/dev/nvidiactl", EACCES, "EACCES", "give this user"); }
ISOLATED_TEST(DeviceFiles, DeviceAbsent) { expect_refused("/dev/nvidia0", ENOENT, "ENOENT", "container"); }
ISOLATED_TEST(DeviceFiles, DeviceForbidden) { expect_refused("/dev/nvidia0", EACCES, "EACCES", "give this user"); }

ISOLATED_TEST(DeviceFiles, ForbiddenHasItsOwnStatus) {
  MappingSession session;
  session.plant(fake::Call::open, "/dev/nvidia0", EACCES);
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  EXPECT_EQ(name_of(map(pointer(address), 4096).status()), "no_permission");
  FakeSession::free(address);
}

// /proc is not there (a container without it): the minor is not guessed.
ISOLATED_TEST(DeviceFiles, UnknownMinorIsNotGuessed) {
  MappingSession session;
  session.start();
  session.tree().write(std::string("proc/driver/nvidia/gpus/") + session.machine().gpus[0].pci_address + "/information",
                       "Model: x\n");
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096, require(MappingBackend::rm));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find(session.machine().gpus[0].pci_address), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().total_rm_maps, 0u);
  FakeSession::free(address);
}

// The minor of another GPU: the resource manager refuses it, and no window is made.
ISOLATED_TEST(DeviceFiles, MinorOfAnotherGpu) {
  MappingSession session;
  session.machine().gpu_count = 2;
  session.machine().gpus[0].told_proc_minor = 1;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096, require(MappingBackend::rm));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("0x1f"), std::string::npos) << refused.error().message();
  EXPECT_EQ(FakeSession::counts().total_mmaps, 0u);
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
