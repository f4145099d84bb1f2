// SPDX-License-Identifier: Apache-2.0
// Mappings of host memory and stand-in devices: gigabar/mapping.hpp without a GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "gigabar/mapping.hpp"
#include "mapping/access.hpp"
#include "mapping/backend.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

class StandInMapping : public testing::Test {
 protected:
  ~StandInMapping() override {
    trim_mapping_cache(0);
    EXPECT_EQ(mapping_cache_statistics().window_count, 0u);
  }
  static DeviceMemory allocate(int device, std::size_t bytes) {
    auto memory = DeviceMemory::allocate(device, bytes);
    EXPECT_TRUE(memory) << memory.error().message();
    return std::move(*memory);
  }
  test::ScopedEnvironment two_{"GIGABAR_STAND_IN", "2"};
  test::ScopedEnvironment free_choice_{"GIGABAR_MAPPING", nullptr};
};

TEST(MappingNames, EachHasItsOwnAndReadsBack) {
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm, MappingBackend::host}) {
    EXPECT_EQ(mapping_backend_from_name(name_of(backend)), backend);
  }
  EXPECT_EQ(name_of(MappingBackend::dmabuf), "dmabuf");
  EXPECT_EQ(name_of(MappingType::write_combined), "write_combined");
  EXPECT_EQ(name_of(MappingType::uncached), "uncached");
  EXPECT_EQ(name_of(MappingType::cached), "cached");
  for (const char* other : {"", "RM", "rm ", "auto", "unknown", "gdr"}) EXPECT_FALSE(mapping_backend_from_name(other)) << other;
}

TEST_F(StandInMapping, IsTheMemoryItself) {
  const DeviceMemory memory = allocate(1, 100000);
  auto mapping = map(static_cast<std::byte*>(memory.address()) + 777, 5000);
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->address(), static_cast<std::byte*>(memory.address()) + 777);
  EXPECT_EQ(mapping->device_address(), reinterpret_cast<std::uintptr_t>(memory.address()) + 777);
  EXPECT_EQ(mapping->bytes(), 5000u);
  EXPECT_EQ(mapping->type(), MappingType::cached);
  EXPECT_EQ(mapping->backend(), MappingBackend::host);
  EXPECT_EQ(mapping->device(), 1);
  EXPECT_TRUE(mapping->is_stand_in());
  EXPECT_TRUE(mapping->is_usable());
}

TEST_F(StandInMapping, SaysWhyBetterBackendsWerePassedOver) {
  const DeviceMemory memory = allocate(0, 4096);
  const auto mapping = map(memory.address(), 4096);
  ASSERT_TRUE(mapping);
  const MappingReport& report = mapping->report();
  EXPECT_EQ(report.backend, MappingBackend::host);
  ASSERT_EQ(report.passed_over.size(), 3u);
  EXPECT_EQ(report.passed_over[0].backend, MappingBackend::dmabuf);
  EXPECT_EQ(report.passed_over[1].backend, MappingBackend::gdrdrv);
  EXPECT_EQ(report.passed_over[2].backend, MappingBackend::rm);
  for (const PassedOver& each : report.passed_over) {
    EXPECT_FALSE(each.why.is_ok());
    EXPECT_FALSE(each.why.reason.empty()) << name_of(each.backend);
  }
}

TEST_F(StandInMapping, BackendsOfADevice) {
  const auto reports = mapping_backends(1);
  ASSERT_TRUE(reports);
  ASSERT_EQ(reports->size(), kMappingBackendCount);
  EXPECT_EQ(reports->back().backend, MappingBackend::host);
  EXPECT_TRUE(reports->back().availability.is_ok());
  for (std::size_t i = 0; i + 1 < reports->size(); ++i) EXPECT_FALSE((*reports)[i].availability.is_ok());
  EXPECT_EQ(mapping_backends(2).status(), Status::invalid_argument);
  EXPECT_EQ(mapping_backends(-1).status(), Status::invalid_argument);
}

TEST_F(StandInMapping, CoversIsExactAndNeverOverflows) {
  const DeviceMemory memory = allocate(0, 4096);
  const auto mapping = map(memory.address(), 4096);
  EXPECT_TRUE(mapping->covers(0, 4096));
  EXPECT_TRUE(mapping->covers(4096, 0));
  EXPECT_TRUE(mapping->covers(4095, 1));
  EXPECT_FALSE(mapping->covers(4095, 2));
  EXPECT_FALSE(mapping->covers(4097, 0));
  EXPECT_FALSE(mapping->covers(1, SIZE_MAX));
  EXPECT_FALSE(mapping->covers(SIZE_MAX, 1));
  EXPECT_FALSE(mapping->covers(SIZE_MAX, SIZE_MAX));
}

TEST_F(StandInMapping, BadRangesAreRefused) {
  const DeviceMemory memory = allocate(0, 4096);
  auto* base = static_cast<std::byte*>(memory.address());
  EXPECT_TRUE(map(base + 4095, 1));
  EXPECT_EQ(map(nullptr, 1).status(), Status::invalid_argument);
  EXPECT_EQ(map(base, 0).status(), Status::invalid_argument);
  EXPECT_EQ(map(base, 4097).status(), Status::out_of_range);
  EXPECT_EQ(map(base + 4095, 2).status(), Status::out_of_range);
  EXPECT_EQ(map(base + 1, SIZE_MAX).status(), Status::out_of_range);
  EXPECT_EQ(map(base, SIZE_MAX - 1).status(), Status::out_of_range);
  const auto refused = map(base + 100, 4000);
  EXPECT_NE(refused.error().message().find("3996"), std::string::npos) << "says how much there is: " << refused.error().message();
}

TEST_F(StandInMapping, MemoryThatIsNoDevicesIsRefused) {
  int local = 0;
  const auto pageable = map(&local, sizeof local);
  EXPECT_EQ(pageable.status(), Status::not_supported);
  EXPECT_FALSE(pageable.error().record().remedy.empty());
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(map(page, 1).status(), Status::not_supported);
  ::munmap(page, 4096);
  EXPECT_EQ(map(page, 1).status(), Status::invalid_argument) << "no memory of this process any more";
  EXPECT_EQ(map(reinterpret_cast<void*>(0xdead'0000'0000), 1).status(), Status::invalid_argument);
  void* freed = allocate(0, 4096).address();
  EXPECT_EQ(map(freed, 1).status(), Status::invalid_argument);
}

TEST_F(StandInMapping, PinnedHostMemory) {
  auto memory = HostMemory::allocate(10000);
  ASSERT_TRUE(memory);
  const auto mapping = map(static_cast<std::byte*>(memory->address()) + 1, 9999);
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->address(), static_cast<std::byte*>(memory->address()) + 1);
  EXPECT_EQ(mapping->backend(), MappingBackend::host);
  EXPECT_EQ(mapping->device(), -1);
  EXPECT_FALSE(mapping->is_stand_in());
}

TEST_F(StandInMapping, OtherBackendsCannotBeRequired) {
  const DeviceMemory memory = allocate(0, 4096);
  MapOptions options;
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm}) {
    options.backend = backend;
    const auto refused = map(memory.address(), 4096, options);
    EXPECT_EQ(refused.status(), Status::unavailable) << name_of(backend);
    EXPECT_NE(refused.error().message().find(name_of(backend)), std::string::npos) << refused.error().message();
  }
  options.backend = MappingBackend::host;
  EXPECT_TRUE(map(memory.address(), 4096, options));
}

TEST_F(StandInMapping, TheEnvironmentForcesAndIsChecked) {
  const DeviceMemory memory = allocate(0, 4096);
  {
    const test::ScopedEnvironment forced("GIGABAR_MAPPING", "rm");
    EXPECT_EQ(map(memory.address(), 4096).status(), Status::unavailable);
    MapOptions options;
    options.backend = MappingBackend::host;
    EXPECT_TRUE(map(memory.address(), 4096, options)) << "the option comes first";
  }
  {
    const test::ScopedEnvironment forced("GIGABAR_MAPPING", "host");
    EXPECT_TRUE(map(memory.address(), 4096));
  }
  const test::ScopedEnvironment forced("GIGABAR_MAPPING", "fastest");
  const auto refused = map(memory.address(), 4096);
  EXPECT_EQ(refused.status(), Status::invalid_argument);
  EXPECT_NE(refused.error().message().find("fastest"), std::string::npos);
  EXPECT_NE(refused.error().message().find("dmabuf"), std::string::npos) << "names those there are";
}

TEST_F(StandInMapping, MovesAndEndsUnusable) {
  const DeviceMemory memory = allocate(0, 4096);
  auto first = map(memory.address(), 4096);
  Mapping second = std::move(*first);
  EXPECT_FALSE(first->is_usable());
  EXPECT_FALSE(first->covers(0, 1));
  EXPECT_TRUE(second.is_usable());
  auto third = map(static_cast<std::byte*>(memory.address()) + 64, 64);
  *third = std::move(second);
  EXPECT_EQ(third->bytes(), 4096u);
  EXPECT_EQ(third->device(), 0);
}

TEST_F(StandInMapping, FreedMemoryStaysSafeUnderAMapping) {
  auto memory = DeviceMemory::allocate(0, 65536);
  auto mapping = map(memory->address(), 65536);
  mapping->address()[5] = std::byte{42};
  {
    const DeviceMemory freed = std::move(*memory);
  }
  EXPECT_EQ(mapping->address()[5], std::byte{42});
  mapping->address()[6] = std::byte{43};
  EXPECT_EQ(map(mapping->address(), 1).status(), Status::not_supported) << "it is nobody's allocation any more";
}

TEST_F(StandInMapping, AForkedChildHasNone) {
  const DeviceMemory memory = allocate(0, 65536);
  const auto mapping = map(memory.address(), 65536);
  EXPECT_TRUE(test::run_in_child([&] { return mapping->is_usable() ? 1 : 2; }).is_exit(2)) << "unusable in the child";
  EXPECT_TRUE(mapping->is_usable());
}

TEST_F(StandInMapping, AnInheritedOneIsSharedWithTheChild) {
  const DeviceMemory memory = allocate(0, 65536);
  MapOptions options;
  options.inherit_on_fork = true;
  auto mapping = map(memory.address(), 65536, options);
  ASSERT_TRUE(mapping) << mapping.error().message();
  mapping->address()[0] = std::byte{1};
  const test::ChildEnd end = test::run_in_child([&] {
    if (!mapping->is_usable() || mapping->address()[0] != std::byte{1}) return 1;
    mapping->address()[1] = std::byte{7};
    return 2;
  });
  EXPECT_TRUE(end.is_exit(2)) << end.to_string();
  EXPECT_EQ(mapping->address()[1], std::byte{7}) << "the same memory";
}

TEST_F(StandInMapping, PagesAroundARange) {
  const DeviceMemory memory = allocate(0, 3 * 65536);
  auto* base = static_cast<std::byte*>(memory.address());
  const auto mapping = map_pages(base + 65536 + 10, 20, 65536, {});
  ASSERT_TRUE(mapping) << mapping.error().message();
  EXPECT_EQ(mapping->address(), base + 65536);
  EXPECT_EQ(mapping->bytes(), 65536u);
  for (const auto& [begin, bytes, part] : {std::tuple{base + 10, SIZE_MAX, "wraps around the address space"},
                                           std::tuple{base + 10, SIZE_MAX - 65536, "wraps around the address space"},
                                           std::tuple{base + 3 * 65536 - 1, std::size_t{70000}, "leaves its block"}}) {
    const auto refused = map_pages(begin, bytes, 65536, {});
    ASSERT_FALSE(refused) << part;
    EXPECT_EQ(refused.status(), Status::out_of_range) << refused.error().message();
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
  }
}

TEST(RangeToMap, AllOfASmallAllocationAndLargePagesOfALargeOne) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const DeviceRange small{0x10000000, 16 * kMiB};
  const DeviceRange all = range_to_map(small, {0x10000000 + 5, 3});
  EXPECT_EQ(all.begin, small.begin);
  EXPECT_EQ(all.bytes, small.bytes);
  const DeviceRange large{0x10000000, (std::size_t{5} << 30) + 3 * kMiB};
  for (const DeviceRange asked : {DeviceRange{large.begin, 1}, DeviceRange{large.begin + 7 * kMiB - 1, 2},
                                  DeviceRange{large.begin + large.bytes - 1, 1}, DeviceRange{large.begin, large.bytes}}) {
    const DeviceRange range = range_to_map(large, asked);
    EXPECT_LE(range.begin, asked.begin);
    EXPECT_GE(range.begin + range.bytes, asked.begin + asked.bytes);
    EXPECT_LE(range.begin + range.bytes, large.begin + large.bytes) << "not past the allocation";
    EXPECT_EQ((range.begin - large.begin) % (2 * kMiB), 0u);
    EXPECT_LE(range.bytes, asked.bytes + 4 * kMiB) << "little more than asked";
  }
}

}  // namespace
}  // namespace gigabar
