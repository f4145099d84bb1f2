// SPDX-License-Identifier: Apache-2.0
#include "fabric/id_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace gigabar::fabric {
namespace {

TEST(IdTable, FindsWhatIsThereAndNothingElse) {
  IdTable<std::string> table;
  const auto at = [&](std::uint64_t id) { return table.find(id) != nullptr ? *table.find(id) : "nothing"; };
  EXPECT_EQ(table.find(7), nullptr);
  table.erase(7);
  table.insert(7, "a");
  table.insert(7 + 64, "b");  // the same place at first
  table.insert(7 + 128, "c");
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(at(7), "a");
  EXPECT_EQ(at(71), "b");
  EXPECT_EQ(at(135), "c");
  EXPECT_EQ(table.find(8), nullptr);
  table.erase(7);
  EXPECT_EQ(table.find(7), nullptr);
  EXPECT_EQ(at(71), "b") << "one that was put further on is still found";
  EXPECT_EQ(at(135), "c");
  EXPECT_EQ(table.size(), 2U);
}

// Ids as operations have them: most ends soon, some stay for long, so that places are taken and left in every order.
TEST(IdTable, IsLikeAMapThroughManyOperations) {
  IdTable<int> table;
  std::unordered_map<std::uint64_t, int> map;
  std::vector<std::uint64_t> ids;
  std::mt19937_64 random(1);
  std::uint64_t last = ~std::uint64_t{0} - 150'000;  // the last numbers that there are
  for (int step = 0; step < 200'000; ++step) {
    if (ids.empty() || (ids.size() < 3000 && random() % 2 == 0)) {
      last += 1 + random() % 2;
      if (last == 0) last = 1;
      table.insert(last, step);
      map[last] = step;
      ids.push_back(last);
    } else {
      const std::size_t index = random() % 3 == 0 ? random() % ids.size() : ids.size() - 1;
      table.erase(ids[index]);
      map.erase(ids[index]);
      ids[index] = ids.back();
      ids.pop_back();
    }
    ASSERT_EQ(table.size(), map.size());
    const std::uint64_t asked = last - random() % 4000;
    const auto found = map.find(asked);
    const int* const there = table.find(asked);
    ASSERT_EQ(there != nullptr, found != map.end()) << "step " << step;
    if (there != nullptr) {
      ASSERT_EQ(*there, found->second) << "step " << step;
    }
  }
  for (const auto& [id, value] : map) ASSERT_EQ(*table.find(id), value);
}

}  // namespace
}  // namespace gigabar::fabric
