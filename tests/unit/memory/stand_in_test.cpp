// SPDX-License-Identifier: Apache-2.0
// Stand-in devices: a machine without a GPU. gigabar/device.hpp and gigabar/memory.hpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "support/no_more_descriptors.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

// Whatever this machine has, these tests see stand-ins.
class StandIn : public testing::Test {
 protected:
  test::ScopedEnvironment two_{"GIGABAR_STAND_IN", "2"};
};

TEST(MemoryKindNames, EachHasItsOwn) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(MemoryKind::stand_in); ++kind) names.insert(name_of(static_cast<MemoryKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(MemoryKind::stand_in) + 1);
  EXPECT_EQ(name_of(MemoryKind::device_vmm), "device_vmm");
  EXPECT_FALSE(names.contains("unknown"));
}

// A child does not have its parent's memory: the kernel gives it the same addresses for memory of its own.
ISOLATED_TEST(StandInDevices, AForkedChildsOwnMemoryStays) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto parents = DeviceMemory::allocate(0, kBytes);
  ASSERT_TRUE(parents);
  EXPECT_TRUE(test::run_in_child([&] {
                const auto own = DeviceMemory::allocate(0, kBytes);
                if (!own || own->address() != parents->address()) return 1;
                std::memset(own->address(), 0x5a, kBytes);
                return static_cast<const unsigned char*>(own->address())[kBytes - 1] == 0x5a ? 0 : 2;
              }).is_exit(0));
  std::memset(parents->address(), 0x3c, kBytes);
}

ISOLATED_TEST(StandInDevices, WithoutLibcudaThereIsOne) {
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  const test::ScopedEnvironment unset("GIGABAR_STAND_IN", nullptr);
  const auto list = devices();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 1u);
  const DeviceInfo& device = list->front();
  EXPECT_TRUE(device.is_stand_in);
  EXPECT_NE(device.name.find("stand-in"), std::string::npos);
  EXPECT_EQ(device.index, 0);
  EXPECT_TRUE(device.uuid.empty());
  EXPECT_FALSE(device.pci);
  EXPECT_GT(device.memory_bytes, 0u);
}

TEST_F(StandIn, AsManyAsAreAskedFor) {
  const auto list = devices();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].index, 1);
  EXPECT_TRUE((*list)[1].is_stand_in);
  const test::ScopedEnvironment many("GIGABAR_STAND_IN", "64");
  EXPECT_EQ(devices()->size(), 64u);
}

TEST(StandInDevices, BadCountsAreRefused) {
  for (const char* bad : {"0", "65", "-1", "two", "1 ", " 1", "1.5", "0x1", "99999999999999999999", "1;2"}) {
    const test::ScopedEnvironment count("GIGABAR_STAND_IN", bad);
    const auto list = devices();
    EXPECT_EQ(list.status(), Status::invalid_argument) << "'" << bad << "'";
    if (list) continue;
    EXPECT_NE(list.error().message().find("GIGABAR_STAND_IN"), std::string::npos) << list.error().message();
    EXPECT_FALSE(list.error().record().remedy.empty());
    EXPECT_EQ(DeviceMemory::allocate(0, 4096).status(), Status::invalid_argument) << "'" << bad << "'";
  }
}

TEST_F(StandIn, MemoryIsHostMemoryThatSaysWhatItIs) {
  auto memory = DeviceMemory::allocate(1, 100000);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_TRUE(memory->is_stand_in());
  EXPECT_EQ(memory->device(), 1);
  EXPECT_EQ(memory->bytes(), 100000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->address()) % 65536, 0u);
  std::memset(memory->address(), 0x5a, memory->bytes());

  auto* inside = static_cast<std::byte*>(memory->address()) + 777;
  const auto info = describe(inside);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind, MemoryKind::stand_in);
  EXPECT_EQ(info->address, reinterpret_cast<std::uintptr_t>(inside));
  EXPECT_EQ(info->base, reinterpret_cast<std::uintptr_t>(memory->address()));
  EXPECT_EQ(info->length_bytes, 100000u);
  EXPECT_EQ(info->offset_bytes, 777u);
  EXPECT_EQ(info->device, 1);
  EXPECT_NE(info->buffer_id, 0u);
  EXPECT_FALSE(info->pci);
}

TEST_F(StandIn, MemoryEndsWhereItEnds) {
  const auto memory = DeviceMemory::allocate(0, 100);
  ASSERT_TRUE(memory);
  auto* base = static_cast<std::byte*>(memory->address());
  EXPECT_EQ(describe(base + 99)->kind, MemoryKind::stand_in);
  EXPECT_NE(describe(base + 100)->kind, MemoryKind::stand_in);
}

TEST_F(StandIn, BufferIdsAreNeverReused) {
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 20; ++i) {
    const auto memory = DeviceMemory::allocate(0, 65536);
    ids.insert(describe(memory->address())->buffer_id);
  }
  EXPECT_EQ(ids.size(), 20u);
}

TEST_F(StandIn, FreedMemoryIsUnknown) {
  void* address = nullptr;
  {
    const auto memory = DeviceMemory::allocate(0, 65536);
    address = memory->address();
    EXPECT_EQ(describe(address)->kind, MemoryKind::stand_in);
  }
  EXPECT_EQ(describe(address)->kind, MemoryKind::host_pageable);
  EXPECT_EQ(describe(address)->length_bytes, 0u);
}

TEST_F(StandIn, BadAllocationsAreRefusedByName) {
  EXPECT_EQ(DeviceMemory::allocate(0, 0).status(), Status::invalid_argument);
  EXPECT_EQ(DeviceMemory::allocate(0, SIZE_MAX).status(), Status::invalid_argument);
  EXPECT_EQ(DeviceMemory::allocate(2, 4096).status(), Status::invalid_argument);
  EXPECT_EQ(DeviceMemory::allocate(-1, 4096).status(), Status::invalid_argument);
  const auto refused = DeviceMemory::allocate(7, 4096);
  EXPECT_NE(refused.error().message().find("device 7"), std::string::npos) << refused.error().message();
  const auto too_much = DeviceMemory::allocate(0, std::size_t{1} << 60);
  EXPECT_EQ(too_much.status(), Status::out_of_memory);
  EXPECT_FALSE(too_much.error().record().remedy.empty());
}

TEST_F(StandIn, MovesAsOwner) {
  auto first = DeviceMemory::allocate(0, 65536);
  auto second = DeviceMemory::allocate(0, 65536);
  void* const kept = second->address();
  void* const freed = first->address();
  *first = std::move(*second);
  EXPECT_EQ(first->address(), kept);
  EXPECT_EQ(second->address(), nullptr);
  EXPECT_EQ(second->bytes(), 0u);
  EXPECT_EQ(describe(freed)->kind, MemoryKind::host_pageable) << "what it owned before is freed";
  EXPECT_EQ(second->export_descriptor().status(), Status::invalid_argument);
}

TEST_F(StandIn, ExportsAMemfdOfTheSamePages) {
  const auto memory = DeviceMemory::allocate(0, 100000);
  std::strcpy(static_cast<char*>(memory->address()), "shared");
  const auto descriptor = memory->export_descriptor();
  ASSERT_TRUE(descriptor) << descriptor.error().message();
  EXPECT_NE(::fcntl(*descriptor, F_GETFD) & FD_CLOEXEC, 0);
  void* other = ::mmap(nullptr, 65536, PROT_READ, MAP_SHARED, *descriptor, 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_STREQ(static_cast<char*>(other), "shared");
  ::munmap(other, 65536);
  ::close(*descriptor);
  EXPECT_EQ(memory->export_dma_buf().status(), Status::not_supported);
}

// Windows are kept after a free, for a while and by the hundred: they must not use up the descriptors.
TEST_F(StandIn, HeldPagesKeepNoDescriptor) {
  const auto lowest_free = [] {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(descriptor);
    return descriptor;
  };
  const int before = lowest_free();
  volatile char* byte = nullptr;
  std::shared_ptr<const void> held;
  {
    const auto memory = DeviceMemory::allocate(0, 4096);
    ASSERT_TRUE(memory);
    EXPECT_NE(lowest_free(), before);
    byte = static_cast<volatile char*>(memory->address());
    *byte = 42;
    held = stand_in_runtime().hold(reinterpret_cast<std::uintptr_t>(memory->address()));
    ASSERT_NE(held, nullptr);
  }
  EXPECT_EQ(*byte, 42);
  EXPECT_EQ(lowest_free(), before);
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
ISOLATED_TEST(StandInLimits, DescriptorsAreExhausted) {
  const test::ScopedEnvironment one("GIGABAR_STAND_IN", "1");
  const auto memory = DeviceMemory::allocate(0, 4096);
  ASSERT_TRUE(memory);
  const auto refused = test::without_descriptors([] { return DeviceMemory::allocate(0, 4096); });
  EXPECT_EQ(refused.status(), Status::out_of_descriptors);
  EXPECT_FALSE(refused.error().record().remedy.empty());
  EXPECT_EQ(test::without_descriptors([&] { return memory->export_descriptor(); }).status(), Status::out_of_descriptors);
  EXPECT_TRUE(DeviceMemory::allocate(0, 4096));
}
#endif

TEST_F(StandIn, CopyEngineIsMemcpy) {
  const auto memory = DeviceMemory::allocate(0, 4096);
  const auto address = reinterpret_cast<std::uintptr_t>(memory->address());
  const std::string sent = "through the copy engine";
  ASSERT_TRUE(engine_copy_to(0, address + 5, sent.data(), sent.size()));
  std::string got(sent.size(), '\0');
  ASSERT_TRUE(engine_copy_from(0, got.data(), address + 5, got.size()));
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(engine_copy_to(0, address, nullptr, 0));
}

TEST(Describe, NullIsRefusedAndAnyOtherValueIsAnswered) {
  EXPECT_EQ(describe(nullptr).status(), Status::invalid_argument);
  for (const std::uintptr_t value : {std::uintptr_t{1}, std::uintptr_t{0xdeadbeef000}, UINTPTR_MAX}) {
    const auto info = describe(reinterpret_cast<void*>(value));
    ASSERT_TRUE(info) << value;
    EXPECT_EQ(info->kind, MemoryKind::host_pageable);
    EXPECT_EQ(info->base, value);
    EXPECT_EQ(info->length_bytes, 0u);
    EXPECT_EQ(info->device, -1);
  }
  int local = 0;
  EXPECT_EQ(describe(&local)->kind, MemoryKind::host_pageable);
}

}  // namespace
}  // namespace gigabar
