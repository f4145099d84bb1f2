// SPDX-License-Identifier: Apache-2.0
// Exhausted descriptors and BAR1: the error says which limit, nothing is left, and it works again when there is room.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

constexpr std::size_t kBlock = std::size_t{2} << 20;

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
// Nothing was opened before: the limit is met by whatever comes first.
void expect_first_use_names_the_limit(MappingBackend backend) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  {
    const auto refused = test::without_descriptors([&] { return map(pointer(address), kBlock, require(backend)); });
    ASSERT_FALSE(refused) << name_of(backend);
    EXPECT_NE(refused.error().message().find("EMFILE"), std::string::npos) << refused.error().message();
    EXPECT_NE(refused.error().message().find("ulimit -n"), std::string::npos) << refused.error().message();
  }
  const fake::Counts counts = FakeSession::counts();
  EXPECT_EQ(counts.windows + counts.rm_mappings + counts.rm_memory_objects + counts.gdrdrv_pins, 0u) << name_of(backend);
  expect_shows_memory(must_map(address, kBlock, require(backend)), 1);
  FakeSession::free(address);
}

ISOLATED_TEST(Descriptors, DmabufAtFirstUse) { expect_first_use_names_the_limit(MappingBackend::dmabuf); }
ISOLATED_TEST(Descriptors, GdrdrvAtFirstUse) { expect_first_use_names_the_limit(MappingBackend::gdrdrv); }
ISOLATED_TEST(Descriptors, RmAtFirstUse) { expect_first_use_names_the_limit(MappingBackend::rm); }

void expect_status_when_full(MappingBackend backend) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  must_map(address, kBlock, require(backend));  // everything that is opened once is open now
  trim_mapping_cache(0);
  {
    const auto mapping = test::without_descriptors([&] { return map(pointer(address), kBlock, require(backend)); });
    if (backend == MappingBackend::gdrdrv) {
      EXPECT_TRUE(mapping) << "one descriptor serves all windows";
    } else {
      EXPECT_EQ(name_of(mapping.status()), "out_of_descriptors") << mapping.error().message();
      EXPECT_FALSE(mapping.error().record().remedy.empty());
    }
  }
  expect_shows_memory(must_map(address, kBlock, require(backend)), 1);
  FakeSession::free(address);
}

ISOLATED_TEST(Descriptors, DmabufWhenFull) { expect_status_when_full(MappingBackend::dmabuf); }
ISOLATED_TEST(Descriptors, GdrdrvWhenFull) { expect_status_when_full(MappingBackend::gdrdrv); }
ISOLATED_TEST(Descriptors, RmWhenFull) { expect_status_when_full(MappingBackend::rm); }

ISOLATED_TEST(Descriptors, VmmExportWhenFull) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate_vmm(0, kBlock, true);
  must_map(address, kBlock);
  trim_mapping_cache(0);
  const auto refused = test::without_descriptors([&] { return map(pointer(address), kBlock); });
  EXPECT_EQ(name_of(refused.status()), "out_of_descriptors");
  expect_shows_memory(must_map(address, kBlock), 1);
  FakeSession::free_vmm(address, kBlock);
}
#endif

ISOLATED_TEST(Descriptors, MappingsUntilTheLimitAndBack) {
  MappingSession session;
  session.start();
  std::vector<CUdeviceptr> memory;
  for (int i = 0; i < 40; ++i) memory.push_back(FakeSession::allocate(kBlock));
  session.plant(fake::Call::open, "/dev/nvidia0", EMFILE, fake::kForEver, 30);
  {
    std::vector<Mapping> mappings;
    Status status = Status::ok;
    for (const CUdeviceptr address : memory) {
      auto mapping = map(pointer(address), kBlock);
      status = mapping.status();
      if (!mapping) break;
      mappings.push_back(std::move(*mapping));
    }
    EXPECT_EQ(status, Status::out_of_descriptors);
    EXPECT_GE(mappings.size(), 20u);
    for (const Mapping& mapping : mappings) expect_shows_memory(mapping, 1);
  }
  session.remove_faults();
  must_map(memory.back(), kBlock);
  for (const CUdeviceptr address : memory) FakeSession::free(address);
}

ISOLATED_TEST(Bar1, FullIsAnErrorWithARemedy) {
  MappingSession session;
  session.machine().gpus[0].bar1_bytes = 16 * kBlock;
  session.start();
  for (const std::uint32_t status : {0x1au, 0x51u}) {
    session.machine().bar1_status = status;
    const CUdeviceptr first = FakeSession::allocate(10 * kBlock);
    const CUdeviceptr second = FakeSession::allocate(10 * kBlock);
    {
      const Mapping held = must_map(first, 10 * kBlock);
      const auto refused = map(pointer(second), 10 * kBlock);
      ASSERT_FALSE(refused);
      EXPECT_EQ(name_of(refused.status()), "out_of_bar1") << refused.error().message();
      EXPECT_NE(refused.error().message().find("BAR1"), std::string::npos) << refused.error().message();
      EXPECT_FALSE(refused.error().record().remedy.empty());
      EXPECT_EQ(refused.error().record().native.domain, NativeDomain::resource_manager);
      EXPECT_EQ(refused.error().record().native.code, status);
      expect_shows_memory(held, 1);
      EXPECT_EQ(FakeSession::counts().windows, 1u);
    }
    trim_mapping_cache(0);
    expect_shows_memory(must_map(second, 10 * kBlock), 2);
    trim_mapping_cache(0);
    FakeSession::free(first);
    FakeSession::free(second);
  }
}

// Idle windows take BAR1 that nobody uses: they make room before anybody is refused.
ISOLATED_TEST(Bar1, IdleWindowsMakeRoom) {
  MappingSession session;
  session.machine().gpus[0].bar1_bytes = 16 * kBlock;
  session.start();
  const CUdeviceptr first = FakeSession::allocate(10 * kBlock);
  const CUdeviceptr second = FakeSession::allocate(10 * kBlock);
  must_map(first, 10 * kBlock);
  EXPECT_EQ(mapping_cache_statistics().idle_count, 1u);
  const auto mapping = map(pointer(second), 10 * kBlock);
  EXPECT_TRUE(mapping) << mapping.error().message();
  FakeSession::free(first);
  FakeSession::free(second);
}

}  // namespace
}  // namespace gigabar
