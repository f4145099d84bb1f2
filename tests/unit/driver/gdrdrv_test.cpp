// SPDX-License-Identifier: Apache-2.0
// GDRCopy's kernel module: driver/gdrdrv/gdrdrv.hpp against the fake module, versions 2.0 to 2.6.
#include "driver/gdrdrv/gdrdrv.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "support/fake_session.hpp"
#include "support/isolated.hpp"

namespace gigabar {
namespace {

using gdrdrv::Module;
using test::FakeSession;

constexpr std::size_t kBlock = std::size_t{2} << 20;

void start_with_module(FakeSession& session, std::uint32_t version) {
  session.machine().has_gdrdrv = true;
  session.machine().gdrdrv_version = version;
  session.start();
}

ISOLATED_TEST(Gdrdrv, AbsentOrForbidden) {
  FakeSession session;
  session.start();
  const auto absent = Module::open("/dev");
  EXPECT_EQ(absent.status(), Status::unavailable);
  EXPECT_EQ(absent.error().record().native.code, ENOENT);
  EXPECT_FALSE(absent.error().record().remedy.empty());
  session.machine().has_gdrdrv = true;
  session.plant(fake::Call::open, "/dev/gdrdrv", EACCES);
  const auto forbidden = Module::open("/dev");
  EXPECT_EQ(forbidden.status(), Status::no_permission);
  EXPECT_NE(forbidden.error().record().remedy.find("/dev/gdrdrv"), std::string::npos);
  session.remove_faults();
  session.plant(fake::Call::open, "/dev/gdrdrv", EMFILE);
  EXPECT_EQ(Module::open("/dev").status(), Status::out_of_descriptors);
}

ISOLATED_TEST(Gdrdrv, TooOld) {
  FakeSession session;
  start_with_module(session, 0x10003);
  const auto opened = Module::open("/dev");
  EXPECT_FALSE(opened);
  EXPECT_EQ(FakeSession::counts().gdrdrv_descriptors, 0u);
  session.machine().gdrdrv_version = 0x20000;
  EXPECT_TRUE(Module::open("/dev"));
}

void map_and_check(Module& module, CUdeviceptr address, std::size_t bytes) {
  const auto mapping = module.map(address, bytes);
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->bytes, bytes);
  EXPECT_EQ(mapping->type, gdrdrv::CacheType::write_combined);
  const auto content = test::pattern(bytes, 3);
  std::copy(content.begin(), content.end(), static_cast<unsigned char*>(mapping->address));
  EXPECT_EQ(FakeSession::read(address, bytes), content);
  module.unmap(*mapping);
  EXPECT_EQ(FakeSession::counts().gdrdrv_pins, 0u);
}

ISOLATED_TEST(Gdrdrv, EveryVersionMaps) {
  FakeSession session;
  start_with_module(session, 0x20000);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (std::uint32_t minor = 0; minor <= 6; ++minor) {
    session.machine().gdrdrv_version = 0x20000 + minor;
    auto module = Module::open("/dev");
    ASSERT_TRUE(module) << minor << ": " << module.error().message();
    EXPECT_EQ((*module)->version(), "2." + std::to_string(minor));
    EXPECT_EQ((*module)->is_persistent(), minor >= 5) << "older modules do not say, so they are not trusted";
    map_and_check(**module, address, kBlock);
    map_and_check(**module, address + gdrdrv::kPageBytes, 2 * gdrdrv::kPageBytes);
  }
  session.machine().is_gdrdrv_persistent = false;
  EXPECT_FALSE((*Module::open("/dev"))->is_persistent());
  FakeSession::free(address);
}

ISOLATED_TEST(Gdrdrv, RefusesMemoryThatIsNotTheGpus) {
  FakeSession session;
  start_with_module(session, 0x20006);
  const auto module = Module::open("/dev");
  const auto mapping = (*module)->map(0x7000'0000'0000, gdrdrv::kPageBytes);
  EXPECT_EQ(mapping.status(), Status::not_supported);
  EXPECT_FALSE(mapping.error().record().cause.empty());
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  EXPECT_EQ((*module)->map(address, 64 * kBlock).status(), Status::not_supported) << "past the block";
  FakeSession::free(address);
}

ISOLATED_TEST(Gdrdrv, EachFailingCallLeavesNothing) {
  FakeSession session;
  start_with_module(session, 0x20006);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (const fake::Call call : {fake::Call::ioctl, fake::Call::mmap}) {
    unsigned failures = 0;
    for (std::uint32_t skip = 0; skip < 10; ++skip) {
      session.remove_faults();
      session.plant(call, "", ENOMEM, 1, skip);
      bool is_ok = false;
      if (auto module = Module::open("/dev")) {
        const auto mapping = (*module)->map(address, kBlock);
        is_ok = mapping.is_ok();
        session.remove_faults();
        if (mapping) (*module)->unmap(*mapping);
      }
      session.remove_faults();
      EXPECT_EQ(FakeSession::counts().gdrdrv_pins, 0u) << skip;
      EXPECT_EQ(FakeSession::counts().windows, 0u) << skip;
      EXPECT_EQ(FakeSession::counts().gdrdrv_descriptors, 0u) << skip;
      if (is_ok) break;
      ++failures;
    }
    EXPECT_GT(failures, 0u);
    EXPECT_LT(failures, 10u);
  }
  FakeSession::free(address);
}

ISOLATED_TEST(Gdrdrv, PersistentMappingsOutliveTheMemory) {
  FakeSession session;
  start_with_module(session, 0x20006);
  const auto module = Module::open("/dev");
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto mapping = (*module)->map(address, kBlock);
  ASSERT_TRUE(mapping);
  auto* window = static_cast<volatile unsigned char*>(mapping->address);
  window[0] = 17;
  FakeSession::free(address);
  EXPECT_EQ(window[0], 17);
  EXPECT_EQ(FakeSession::counts().memory_used_bytes[0], kBlock);
  (*module)->unmap(*mapping);
}

}  // namespace
}  // namespace gigabar
