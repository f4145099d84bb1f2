// SPDX-License-Identifier: Apache-2.0
// GDRCopy's kernel module: driver/gdrdrv/gdrdrv.hpp against the fake module, versions 2.0 to 2.6.
#include "driver/gdrdrv/gdrdrv.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "support/changed_answer.hpp"
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

// The module says which versions of its interface it serves.
ISOLATED_TEST(Gdrdrv, OfAnInterfaceThatIsNotKnown) {
  FakeSession session;
  start_with_module(session, 0x20006);
  std::uint32_t told[2] = {0x20006, 0x20006};  // the module's version, the oldest library's
  const test::ChangedAnswer answer([&](unsigned number, void* argument) {
    if (number == 255) std::memcpy(argument, told, sizeof told);
  });
  EXPECT_TRUE(Module::open("/dev"));
  for (const auto& [module, oldest_api, part] : {std::tuple{0x10003U, 0x10000U, "version 1.3 asks for an API of at least 1.0"},
                                                 std::tuple{0x30000U, 0x20007U, "version 3.0 asks for an API of at least 2.7"}}) {
    told[0] = module;
    told[1] = oldest_api;
    const auto opened = Module::open("/dev");
    ASSERT_FALSE(opened) << part;
    EXPECT_EQ(opened.status(), Status::unavailable) << opened.error().message();
    EXPECT_NE(opened.error().message().find(part), std::string::npos) << opened.error().message();
    EXPECT_NE(opened.error().record().remedy.find("2.5 or newer"), std::string::npos);
    EXPECT_EQ(FakeSession::counts().gdrdrv_descriptors, 0u);
  }
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

ISOLATED_TEST(Gdrdrv, EveryVersionOpensAndThePersistentOnesMap) {
  FakeSession session;
  start_with_module(session, 0x20000);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (std::uint32_t minor = 0; minor <= 6; ++minor) {
    session.machine().gdrdrv_version = 0x20000 + minor;
    auto module = Module::open("/dev");
    ASSERT_TRUE(module) << minor << ": " << module.error().message();
    EXPECT_EQ((*module)->version(), "2." + std::to_string(minor));
    EXPECT_EQ((*module)->is_persistent(), minor >= 5) << "older modules do not say, so they are not trusted";
    if (!(*module)->is_persistent()) continue;
    map_and_check(**module, address, kBlock);
    map_and_check(**module, address + gdrdrv::kPageBytes, 2 * gdrdrv::kPageBytes);
  }
  FakeSession::free(address);
}

// An access after the memory was freed would be a SIGBUS.
ISOLATED_TEST(Gdrdrv, WhoDoesNotKeepFreedMemoryMapsNone) {
  FakeSession session;
  session.machine().is_gdrdrv_persistent = false;
  start_with_module(session, 0x20006);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const auto module = Module::open("/dev");
  ASSERT_TRUE(module);
  EXPECT_FALSE((*module)->is_persistent());
  const auto refused = (*module)->map(address, kBlock);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::not_supported);
  EXPECT_NE(refused.error().record().remedy.find("use_persistent_mapping"), std::string::npos);
  EXPECT_EQ(FakeSession::counts().gdrdrv_pins, 0u);
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

// How a window is cached decides how it is stored to: one of which the module does not tell is not used.
ISOLATED_TEST(Gdrdrv, RefusesAMappingOfAnUnknownKind) {
  FakeSession session;
  start_with_module(session, 0x20006);
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  constexpr unsigned kInfo = 5;
  for (const std::uint32_t version : {0x20005U, 0x20006U}) {
    session.machine().gdrdrv_version = version;
    for (const int error : {EIO, 0}) {  // 0: it succeeds, and says nothing
      const auto module = Module::open("/dev");
      ASSERT_TRUE(module) << module.error().message();
      session.plant_ioctl(kInfo, 0, error);
      const auto mapping = (*module)->map(address, kBlock);
      session.remove_faults();
      ASSERT_FALSE(mapping) << (*module)->version();
      EXPECT_EQ(mapping.status(), Status::device_error) << mapping.error().message();
      EXPECT_NE(mapping.error().message().find("the module does not say how the mapping is cached"), std::string::npos)
          << mapping.error().message();
      EXPECT_EQ(FakeSession::counts().gdrdrv_pins, 0u);
      EXPECT_EQ(FakeSession::counts().windows, 0u);
      map_and_check(**module, address, kBlock);
    }
  }
  FakeSession::free(address);
}

ISOLATED_TEST(Gdrdrv, RefusesWhatHasNoRoomInTheAperture) {
  FakeSession session;
  start_with_module(session, 0x20006);
  const auto module = Module::open("/dev");
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (const auto& [error, status] : {std::pair{EAGAIN, Status::out_of_bar1}, std::pair{EACCES, Status::no_permission}}) {
    session.plant(fake::Call::mmap, "", error);
    const auto mapping = (*module)->map(address, kBlock);
    session.remove_faults();
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.status(), status) << mapping.error().message();
    EXPECT_NE(mapping.error().message().find("map: gdrdrv: mmap: "), std::string::npos) << mapping.error().message();
    EXPECT_EQ(FakeSession::counts().gdrdrv_pins, 0u);
  }
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
