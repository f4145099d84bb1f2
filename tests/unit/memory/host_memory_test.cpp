// Owned host memory: HostMemory of gigabar/memory.hpp, without a GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/memory.hpp"
#include "platform/numa.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

class HostMemoryTest : public testing::Test {
 protected:
  test::ScopedEnvironment stand_in_{"GIGABAR_STAND_IN", "1"};
  const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(HostMemoryTest, IsPresentZeroedAlignedAndPinned) {
  const auto memory = HostMemory::allocate(3 * page_ + 1);
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_EQ(memory->bytes(), 3 * page_ + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->address()) % page_, 0u);
  EXPECT_TRUE(memory->is_pinned());
  std::vector<unsigned char> present(4);
  ASSERT_EQ(::mincore(memory->address(), 4 * page_, present.data()), 0);
  EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](unsigned char page) { return (page & 1) != 0; }));
  const auto* bytes = static_cast<const unsigned char*>(memory->address());
  EXPECT_TRUE(std::all_of(bytes, bytes + memory->bytes(), [](unsigned char byte) { return byte == 0; }));
}

TEST_F(HostMemoryTest, IsDescribedAsPinnedUntilItIsGone) {
  void* address = nullptr;
  {
    const auto memory = HostMemory::allocate(10000);
    address = memory->address();
    const auto info = describe(static_cast<std::byte*>(address) + 9999);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->kind, MemoryKind::host_pinned);
    EXPECT_EQ(info->base, reinterpret_cast<std::uintptr_t>(address));
    EXPECT_EQ(info->length_bytes, 10000u);
    EXPECT_EQ(info->offset_bytes, 9999u);
    EXPECT_EQ(info->device, -1);
    EXPECT_NE(info->buffer_id, 0u);
    EXPECT_NE(describe(static_cast<std::byte*>(address) + 10000)->kind, MemoryKind::host_pinned);
  }
  EXPECT_EQ(describe(address)->kind, MemoryKind::host_pageable);
}

TEST_F(HostMemoryTest, UnpinnedIsPageable) {
  const auto memory = HostMemory::allocate(4096, {.numa_node = -1, .pin = false});
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->is_pinned());
  EXPECT_EQ(describe(memory->address())->kind, MemoryKind::host_pageable);
}

TEST_F(HostMemoryTest, BadRequestsAreRefused) {
  EXPECT_EQ(HostMemory::allocate(0).status(), Status::invalid_argument);
  EXPECT_EQ(HostMemory::allocate(SIZE_MAX).status(), Status::invalid_argument);
  const auto no_such_node = HostMemory::allocate(4096, {.numa_node = 999, .pin = false});
  EXPECT_EQ(no_such_node.status(), Status::invalid_argument);
  EXPECT_NE(no_such_node.error().message().find("999"), std::string::npos) << no_such_node.error().message();
  EXPECT_EQ(HostMemory::allocate(4096, {.numa_node = -7, .pin = false}).status(), Status::invalid_argument);
  EXPECT_EQ(HostMemory::allocate(std::size_t{1} << 50).status(), Status::out_of_memory);
}

TEST_F(HostMemoryTest, LiesOnTheAskedNode) {
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty()) {
    EXPECT_EQ(HostMemory::allocate(4096, {.numa_node = 0, .pin = false}).status(), Status::invalid_argument)
        << "no NUMA, no node 0";
    return;
  }
  for (const int node : nodes) {
    const auto memory = HostMemory::allocate(16 * page_, {.numa_node = node, .pin = false});
    ASSERT_TRUE(memory) << memory.error().message();
    EXPECT_EQ(memory->numa_node(), node);
    EXPECT_EQ(describe(memory->address())->numa_node, node);
  }
}

TEST_F(HostMemoryTest, MovesAsOwner) {
  auto first = HostMemory::allocate(4096);
  auto second = HostMemory::allocate(8192);
  void* const kept = second->address();
  *first = std::move(*second);
  EXPECT_EQ(first->address(), kept);
  EXPECT_EQ(first->bytes(), 8192u);
  EXPECT_EQ(second->address(), nullptr);
  EXPECT_EQ(second->bytes(), 0u);
  EXPECT_FALSE(second->is_pinned());
}

// Sanitizers replace mlock by nothing, so there is no limit to meet.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Root may lock more than the limit: the test gives that right up in its own process.
ISOLATED_TEST(HostMemoryLimits, LockedMemoryLimitIsNamed) {
  const test::ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const rlimit little{16384, 16384};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto fits = HostMemory::allocate(4096);
  EXPECT_TRUE(fits) << fits.error().message();
  const auto refused = HostMemory::allocate(1 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::out_of_memory);
  EXPECT_NE(refused.error().message().find("ulimit -l"), std::string::npos) << refused.error().message();
  EXPECT_TRUE(HostMemory::allocate(1 << 20, {.numa_node = -1, .pin = false})) << "without pinning there is no limit";
}
#endif

}  // namespace
}  // namespace gigabar
