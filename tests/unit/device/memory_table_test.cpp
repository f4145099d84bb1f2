// SPDX-License-Identifier: Apache-2.0
// MemoryTable: bounds, rights and keys.
#include "device/soft_hca/memory_table.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gigabar::soft_hca {
namespace {

constexpr std::uint64_t kBase = 0x5000;

TEST(MemoryTable, FindsExactlyWhatWasRegistered) {
  MemoryTable table;
  std::array<std::byte, 64> memory{};
  const std::uint32_t key =
      *table.register_memory({memory.data(), kBase, memory.size(), Access::remote_write | Access::remote_read});
  EXPECT_EQ(table.find(key, kBase, 64, Access::remote_write), memory.data());
  EXPECT_EQ(table.find(key, kBase + 63, 1, Access::remote_read), memory.data() + 63);
  EXPECT_EQ(table.find(key, kBase + 63, 2, Access::remote_read), nullptr);
  EXPECT_EQ(table.find(key, kBase + 64, 1, Access::remote_read), nullptr);
  EXPECT_EQ(table.find(key, kBase - 1, 1, Access::remote_read), nullptr);
  EXPECT_EQ(table.find(key, kBase + 1, ~std::uint64_t{0}, Access::remote_read), nullptr);
  EXPECT_EQ(table.find(key, kBase, 8, Access::remote_atomic), nullptr);
  EXPECT_EQ(table.find(key, kBase, 8, Access::local_write), nullptr);
  EXPECT_EQ(table.find(key, kBase, 8, Access::local_read), memory.data());
  for (const std::uint32_t wrong : {0U, key + 1, key + 256, ~0U})
    EXPECT_EQ(table.find(wrong, kBase, 1, Access::local_read), nullptr);
}

TEST(MemoryTable, DoesNotGiveAnOldKeyToNewMemory) {
  MemoryTable table;
  std::array<std::byte, 64> memory{};
  const MemoryRange range{memory.data(), kBase, memory.size(), Access::everything};
  const std::uint32_t key = *table.register_memory(range);
  EXPECT_TRUE(table.deregister_memory(key));
  EXPECT_FALSE(table.deregister_memory(key));
  EXPECT_EQ(table.find(key, kBase, 1, Access::local_read), nullptr);
  const std::uint32_t next = *table.register_memory(range);
  EXPECT_NE(next, key);
  EXPECT_EQ(table.find(key, kBase, 1, Access::local_read), nullptr);
  EXPECT_EQ(table.find(next, kBase, 1, Access::local_read), memory.data());
}

TEST(MemoryTable, RefusesWhatIsNoRange) {
  MemoryTable table;
  std::array<std::byte, 64> memory{};
  EXPECT_EQ(table.register_memory({nullptr, kBase, 64, Access::everything}).status(), Status::invalid_argument);
  EXPECT_EQ(table.register_memory({memory.data(), kBase, 0, Access::everything}).status(), Status::invalid_argument);
  EXPECT_EQ(table.register_memory({memory.data(), ~std::uint64_t{0} - 10, 64, Access::everything}).status(),
            Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar::soft_hca
